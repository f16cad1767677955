"""A little of what ``python -m tests.faults`` does at length: real processes are hurt, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from faults import places, stops
from faults.harness import Lost, Patient, Whole, demand, undisturbed
from faults.ward import Tally, Ward


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> list[Whole]:
    return [undisturbed(tmp_path_factory.mktemp("whole") / "relaxed", "relaxed", 0)]


@pytest.fixture
def ward(wholes: list[Whole], tmp_path: Path) -> Ward:
    return Ward(tmp_path, wholes)


FAULTS: dict[str, tuple[Callable[..., None], int]] = {
    "kill -9, random moment": (stops.kill_at_random, 3),
    "kill -9, at a file operation": (partial(stops.kill_in_writing, longest=200), 3),
    "SIGINT twice": (stops.interrupt_twice, 1),
    "second writer": (stops.second_writer, 1),
    "checkpoint cut or a bit flipped": (places.damaged_checkpoint, 1),
    "out of memory": (places.out_of_memory, 2),
}


@pytest.mark.parametrize("name", FAULTS)
def test_nothing_is_lost(ward: Ward, name: str) -> None:
    fault, count = FAULTS[name]
    tally = Tally()
    fault(ward, tally, count)
    assert tally.lost == []
    assert tally.tried >= count


def test_the_harness_sees_a_loss(ward: Ward) -> None:
    """A hole in the history, another label, a stray file: each is noticed."""
    whole = ward.wholes[0]
    healthy = Patient(ward.folder / "healthy", whole)
    spoils: tuple[tuple[Callable[[Patient], object], str], ...] = (
        (lambda p: p.run.history.write_bytes(b"".join(p.run.history.read_bytes().splitlines(True)[1:])), "a hole"),
        (lambda p: p.run.labels.write_bytes(p.run.labels.read_bytes()[:-1]), "other labels"),
        (lambda p: (p.run.path / ".labels.csv.abc").touch(), "stray"),
        (lambda p: (p.run.checkpoints / "step-000000001.safetensors").touch(), "stray checkpoints"),
    )
    for spoil, complaint in spoils:
        patient = ward.patient(like=Patient(healthy.folder, whole, out=whole.run.path))
        patient.compare()
        spoil(patient)
        with pytest.raises(Lost, match=complaint):
            patient.compare()
    tally = Tally()
    with tally.trial():
        demand(False, "all")
    assert (tally.tried, tally.lost) == (1, ["all"])
