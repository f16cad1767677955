"""Names, merges and noise marks that a person gives the clusters of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.description import DESCRIPTION

from converge_to_surprise.model.carried_names import Annotations, no_annotations
from converge_to_surprise.runs.annotations import (
    apply_annotations,
    read_annotations,
    undo_annotations,
)
from converge_to_surprise.runs.folder import RunFolder

RUN = DESCRIPTION.identity


def saved(folder: Path, *clusters: dict[str, Any], name: str = "saved.json", **changes: Any) -> Path:
    """A file as the report page saves it."""
    path = folder / name
    content = {"format": "converge-to-surprise clusters", "version": 1, "run": RUN, "clusters": list(clusters)}
    path.write_text(json.dumps(content | changes), encoding="utf-8")
    return path


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "run")
    run.make()
    run.describe(DESCRIPTION)
    return run


def test_what_is_not_mentioned_keeps_its_number(tmp_path: Path) -> None:
    assert (
        read_annotations(saved(tmp_path), 3, RUN)
        == no_annotations(3)
        == Annotations(["0", "1", "2"], [0, 1, 2], [False] * 3)
    )


def test_names_merges_and_noise(tmp_path: Path) -> None:
    path = saved(
        tmp_path,
        {"cluster": 3, "name": " sevens ", "into": None, "noise": False},
        {"cluster": 1, "name": "7 with a bar", "into": 2},
        {"cluster": 2, "into": 3},
        {"cluster": 0, "noise": True},
        {"cluster": 4, "into": 0},
    )
    assert read_annotations(path, 5, RUN) == Annotations(
        names=["0", "7 with a bar", "2", "sevens", "4"],
        into=[0, 3, 3, 3, 0],  # chains are followed to their end
        noise=[True, False, False, False, True],  # what is merged into noise is noise
    )


def test_hostile_but_printable_names_are_kept_as_they_are(tmp_path: Path) -> None:
    name = "<script>alert(1)</script> 👩‍🔬"
    assert read_annotations(saved(tmp_path, {"cluster": 0, "name": name}), 1, RUN).names == [name]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"cluster": 4}, "the run has the clusters 0 to 3"),
        ({"cluster": -1}, "is -1"),
        ({"cluster": True}, "is True"),
        ({"cluster": "1"}, "is '1'"),
        ({"name": "x"}, "is None"),
        ({"cluster": 1, "into": 9}, '"into" of cluster 1 .* is 9'),
        ({"cluster": 1, "name": ""}, "must be a text that is not empty"),
        ({"cluster": 1, "name": 7}, "name of cluster 1 .* is 7"),
        ({"cluster": 1, "name": "x" * 101}, "has 101 characters; at most 100"),
        ({"cluster": 1, "name": "a\nb"}, "control character U\\+000A"),
        ({"cluster": 1, "name": "a\u2028b"}, "control character U\\+2028"),
        ({"cluster": 1, "name": "a\u202eb"}, "control character U\\+202E"),
        ({"cluster": 1, "noise": 1}, '"noise" of cluster 1 .* is 1'),
        ({"cluster": 1, "noise": True, "into": 2}, "both noise and merged into cluster 2"),
        ({"cluster": 1, "color": "red"}, "unknown field 'color'"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_annotations(saved(tmp_path, entry), 4, RUN)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "something"}, "not a file of cluster names"),
        ({"version": 2}, "has version 2; this program reads version 1"),
        ({"run": "0" * 64}, "another run"),
        ({"clusters": {}}, "not a list"),
        ({"clusters": [1]}, "not a list"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_annotations(saved(tmp_path, **changes), 4, RUN)


def test_a_file_that_is_no_json_or_no_object(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ValueError, match=r"cannot read .*broken.json"):
        read_annotations(tmp_path / "broken.json", 4, RUN)
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(ValueError, match="not a file of cluster names"):
        read_annotations(tmp_path / "list.json", 4, RUN)


def test_circles_and_doubles_are_refused(tmp_path: Path) -> None:
    circle = [{"cluster": 0, "into": 1}, {"cluster": 1, "into": 2}, {"cluster": 2, "into": 1}]
    with pytest.raises(ValueError, match="in a circle: 1 into 2 into 1"):
        read_annotations(saved(tmp_path, *circle), 4, RUN)
    with pytest.raises(ValueError, match=r"cluster 2 .* appears twice"):
        read_annotations(saved(tmp_path, {"cluster": 2}, {"cluster": 2}), 4, RUN)


@given(st.lists(st.integers(0, 7), min_size=8, max_size=8))
def test_every_chain_of_merges_ends_or_is_a_circle(tmp_path_factory: pytest.TempPathFactory, into: list[int]) -> None:
    def end(number: int) -> int | None:
        for _ in into:
            number = into[number]
        return number if into[number] == number else None

    entries = [{"cluster": number, "into": target} for number, target in enumerate(into)]
    path = saved(tmp_path_factory.mktemp("names"), *entries)
    ends = [end(number) for number in range(8)]
    if None in ends:
        with pytest.raises(ValueError, match="circle"):
            read_annotations(path, 8, RUN)
    else:
        assert read_annotations(path, 8, RUN).into == ends


def test_apply_and_undo_are_a_stack(run: RunFolder, tmp_path: Path) -> None:
    for name in ("first", "second", "third"):
        apply_annotations(run, saved(tmp_path, {"cluster": 1, "name": name}), 2)
        assert read_annotations(run.annotations, 2, RUN).names == ["0", name]
    assert undo_annotations(run)
    assert read_annotations(run.annotations, 2, RUN).names == ["0", "second"]
    apply_annotations(run, saved(tmp_path, {"cluster": 0, "name": "other"}), 2)
    assert undo_annotations(run)
    assert undo_annotations(run)
    assert read_annotations(run.annotations, 2, RUN).names == ["0", "first"]
    assert not undo_annotations(run)
    assert not run.annotations.exists()
    with pytest.raises(ValueError, match="nothing to undo"):
        undo_annotations(run)


def test_a_wrong_file_leaves_the_run_as_it_is(run: RunFolder, tmp_path: Path) -> None:
    apply_annotations(run, saved(tmp_path, {"cluster": 1, "name": "good"}), 2)
    before = run.annotations.read_bytes()
    with pytest.raises(ValueError, match="clusters 0 to 1"):
        apply_annotations(run, saved(tmp_path, {"cluster": 7}), 2)
    assert run.annotations.read_bytes() == before


def test_the_runs_own_file_can_be_applied_again(run: RunFolder, tmp_path: Path) -> None:
    apply_annotations(run, saved(tmp_path, {"cluster": 1, "name": "good"}), 2)
    apply_annotations(run, run.annotations, 2)
    assert undo_annotations(run)
    assert not undo_annotations(run)


def test_a_new_run_in_the_folder_forgets_the_names(run: RunFolder, tmp_path: Path) -> None:
    apply_annotations(run, saved(tmp_path, {"cluster": 1, "name": "good"}), 2)
    run.clear()
    assert not run.annotations.exists()
