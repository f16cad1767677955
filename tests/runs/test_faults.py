"""A little of what ``python -m tests.faults`` does at length: real processes are hurt, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from faults import damage, pictures, places, stops
from faults.harness import Patient, Whole, WorkerLost, demand, pictures_in, undisturbed
from faults.ward import Tally, Ward


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> list[Whole]:
    return [undisturbed(tmp_path_factory.mktemp("whole") / "relaxed", "relaxed", 0)]


@pytest.fixture
def ward(wholes: list[Whole], tmp_path: Path) -> Ward:
    return Ward(tmp_path, wholes)


FAULTS: dict[str, tuple[Callable[..., None], int]] = {
    "kill -9, random moment": (stops.kill_at_random, 2),
    "kill -9, at a file operation": (partial(stops.kill_in_writing, longest=200), 2),
    "SIGINT twice": (stops.interrupt_twice, 1),
    "second writer": (stops.second_writer, 1),
    "checkpoint cut or a bit flipped": (damage.damaged_checkpoint, 1),
    "a bit flipped in each region of a checkpoint": (damage.rotten_checkpoint, 1),
    "array file changed or deleted": (places.changed_source, 1),
    "out of memory": (places.out_of_memory, 1),
}


@pytest.mark.parametrize("name", FAULTS)
def test_nothing_is_lost(ward: Ward, name: str) -> None:
    fault, count = FAULTS[name]
    tally = Tally()
    fault(ward, tally, count)
    assert tally.lost == []
    assert tally.tried >= count


def test_nothing_is_lost_of_pictures(tmp_path: Path) -> None:
    """One run of a folder: killed while its cache is made, then stopped, then a picture is gone for a while."""
    ward = Ward(tmp_path, [undisturbed(tmp_path / "whole", "relaxed", 1, pictures_in)])
    tally = Tally()
    pictures.kill_in_decoding(ward, tally, 2)
    pictures.changed_pictures(ward, tally, 1)
    assert tally.lost == []
    assert tally.tried == 3


def test_the_harness_sees_a_loss(ward: Ward) -> None:
    """A hole in the history, another label, a stray file: each is noticed."""
    whole = ward.wholes[0]
    healthy = Patient(ward.folder / "healthy", whole)
    spoils: tuple[tuple[Callable[[Patient], object], str], ...] = (
        (lambda p: p.run.history.write_bytes(b"".join(p.run.history.read_bytes().splitlines(True)[1:])), "a hole"),
        (lambda p: p.run.labels.write_bytes(p.run.labels.read_bytes()[:-1]), "other labels"),
        (lambda p: (p.run.path / ".labels.csv.abc").touch(), "stray"),
        (lambda p: (p.run.checkpoints / "step-000000001.safetensors").touch(), "stray checkpoints"),
        (lambda p: (p.cache / "building-0.lock").touch(), "stray in the cache"),
    )
    for spoil, complaint in spoils:
        patient = ward.patient(like=Patient(healthy.folder, whole, out=whole.run.path))
        patient.cache.mkdir()
        patient.compare()
        spoil(patient)
        with pytest.raises(WorkerLost, match=complaint):
            patient.compare()
    tally = Tally()
    with tally.trial():
        demand(False, "all")
    assert (tally.tried, tally.lost) == (1, ["all"])
