"""Files that someone made to do harm: each ends in a ValueError, soon, within bounded memory, and runs nothing."""

from __future__ import annotations

import ast
import json
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from faults.harness import SETTINGS, source_of
from fuzz.forge import forged_checkpoint, forged_model, model_data
from fuzz.place import refused, tolerated
from fuzz.spoil import put, spoil_bytes, spoilt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

import converge_to_surprise
from converge_to_surprise import cli
from converge_to_surprise.cli import show
from converge_to_surprise.config import memory
from converge_to_surprise.model import model_file
from converge_to_surprise.model.cluster_model import Model
from converge_to_surprise.runs import annotations as annotation_files
from converge_to_surprise.runs import checkpoint
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.runs.load import load_newest_model
from converge_to_surprise.search.snapshot import Snapshot

fuzz = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
slow_fuzz = settings(fuzz, max_examples=10)
"""For properties whose every example is a whole command."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A finished run with a merge tree and an optimizer."""
    folder = tmp_path_factory.mktemp("finished")
    words = ["fit", str(source_of(folder)), "--out", str(folder / "run"), *SETTINGS["relaxed"].split()]
    assert cli.main([*words, "--checkpoint-seconds", "60"]) == 0
    return RunFolder(folder / "run")


@pytest.fixture
def run(finished: RunFolder, tmp_path: Path) -> RunFolder:
    """A copy to be spoilt; every example of a property gets the files it spoils anew."""
    shutil.copytree(finished.path, tmp_path / "run")
    return RunFolder(tmp_path / "run")


@slow_fuzz
@given(data=st.data())
def test_spoilt_histories(run: RunFolder, finished: RunFolder, data: st.DataObject) -> None:
    lines = finished.history.read_bytes().splitlines(keepends=True)
    first = json.loads(lines[0])
    for _ in range(data.draw(st.integers(1, 3))):
        record = data.draw(spoilt(first))
        junk = [(json.dumps(record) + "\n").encode(), b"\xff\xfe\n", b"[" * 50_000 + b"\n", b'{"step": NaN}\n', b"\n"]
        lines.insert(data.draw(st.integers(0, len(lines))), data.draw(st.sampled_from(junk)))
    run.history.write_bytes(b"".join(lines))
    steps = [record["step"] for record in run.records()]
    assert steps == sorted(set(steps))
    run.truncate_history(10)
    assert cli.main(["show", str(run.path)]) == 0


def test_damage_in_the_history_costs_only_the_damaged_lines(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run.history.read_bytes().splitlines(keepends=True)
    lines[3] = b"\xff" + lines[3][1:]
    lines[5] = lines[5][:20] + b"\n"
    run.history.write_bytes(b"".join(lines))
    assert cli.main(["resume", str(run.path)]) == 0
    warning = capsys.readouterr().err
    assert f"{run.history} is damaged: 2 of its first {len(lines)} records are lost" in warning
    assert run.history.read_bytes() == b"".join(line for number, line in enumerate(lines) if number not in (3, 5))


def test_a_checkpoint_cannot_ask_for_a_huge_network(run: RunFolder) -> None:
    whole, _ = checkpoint.load_newest(run.checkpoints, run.description().identity)
    assert whole is not None
    for change in ({"n_outputs": 10**9}, {"heads": 10**9}, {"n_outputs": 4096, "heads": 256}):
        forged_checkpoint(run, whole.tensors, whole.data | change)
        refused(lambda: load_newest_model(run), "is not valid")


def test_a_configuration_cannot_ask_for_more_than_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 100_000_000)
    words = ["--network.width", "512", "--max-clusters", "4096", "--relaxed.heads", "256", "--relaxed.batch-size", "10"]
    assert cli.main(["fit", "digits", "--out", str(tmp_path / "run"), *words]) == 2
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_every_bit_of_a_checkpoint_counts(tmp_path: Path) -> None:
    """A flipped bit is noticed, or was in the white space."""
    snapshot = Snapshot(
        {"x": torch.arange(4.0)}, {"step": 7, "seconds": 1.5, "merge": {"strengths": {2: 0.5, 10: 0.1}}}
    )
    path = checkpoint.save(tmp_path, snapshot, "run")
    whole = checkpoint.load(path, "run")
    for file in (path, path.with_suffix(".safetensors")):
        content = file.read_bytes()
        for position in range(len(content) * 8):
            changed = bytearray(content)
            changed[position // 8] ^= 1 << position % 8
            file.write_bytes(changed)
            try:
                assert checkpoint.load(path, "run").data == whole.data
            except ValueError:
                continue
            assert chr(content[position // 8]).isspace()
        file.write_bytes(content)


@pytest.mark.parametrize("version", [1, 2])
def test_checkpoints_of_earlier_versions_are_refused(tmp_path: Path, version: int) -> None:
    path = checkpoint.save(tmp_path, Snapshot({"x": torch.arange(4.0)}, {"step": 7}), "run")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": version}))
    refused(lambda: checkpoint.load(path, "run"), f"has version {version}; this program reads version 3")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x04cos\nsystem\n(S'true'\ntR.",
        struct.pack("<Q", 2**62) + b"{}",
        struct.pack("<Q", 2**64 - 1),
        struct.pack("<Q", 100_001) + b"[" * 100_001,
        *(
            struct.pack("<Q", len(header)) + header
            for header in (
                b'{"x":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}',
                b'{"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}',
                b'{"x":{"dtype":"F8_E8M0","shape":[0],"data_offsets":[0,0]}}',
                b'{"x":{"dtype":"NONE","shape":[0],"data_offsets":[0,0]}}',
                b'{"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,0]}}',
            )
        ),
    ],
)
def test_hostile_tensors(tmp_path: Path, content: bytes) -> None:
    path = checkpoint.save(tmp_path, Snapshot({}, {"step": 1}))
    path.with_suffix(".safetensors").write_bytes(content)
    about = json.loads(path.read_text())
    digest = checkpoint._checksum(content, "", about["data"])
    path.write_text(json.dumps(about | {"sha256": digest}))
    tolerated(lambda: checkpoint.load(path))
    if b"F8_E8M0" not in content:
        refused(lambda: checkpoint.load(path), "cannot be read")


def test_a_checkpoint_larger_than_the_memory(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, Snapshot({}, {"step": 1}))
    with path.with_suffix(".safetensors").open("wb") as file:
        file.truncate(1 << 43)
    refused(lambda: checkpoint.load(path), "too much for the .* bytes of free memory")


def test_checkpoints_elsewhere_are_not_touched(run: RunFolder, tmp_path: Path) -> None:
    """A link in a run folder that came from someone else could lead to another run."""
    mine = tmp_path / "mine"
    shutil.move(run.checkpoints, mine)
    (mine / "step-000000001.safetensors").write_text("precious")
    run.checkpoints.symlink_to(mine)
    for words in (["resume", str(run.path)], ["evaluate", str(run.path), "digits"]):
        assert cli.main(words) == 2
    assert (mine / "step-000000001.safetensors").read_text() == "precious"


def test_other_files_are_not_written_through_links(run: RunFolder, tmp_path: Path) -> None:
    for path in (run.history, run.labels, run.result):
        target = tmp_path / f"mine-{path.name}"
        shutil.move(path, target)
        path.symlink_to(target)
    before = {path: path.read_bytes() for path in tmp_path.glob("mine-*")}
    cli.main(["resume", str(run.path)])
    assert {path: path.read_bytes() for path in tmp_path.glob("mine-*")} == before


@pytest.fixture(scope="module")
def model(finished: RunFolder) -> Model:
    return model_file.load(finished.model)[0]


def test_a_model_cannot_ask_for_a_huge_network(model: Model) -> None:
    data = model_data(model_file.to_bytes(model))
    huge = put(data, ("networks", "final", "n_outputs"), 10**9)
    wide = put(data, ("config", "network", "width"), 512)
    for data in (huge, wide):
        forged = forged_model(model_file.to_bytes(model), data)
        refused(lambda forged=forged: model_file.from_bytes(forged, "m"), "is not valid")  # type: ignore[misc]


@fuzz
@given(st.integers(0, 2**32))
def test_spoilt_models(model: Model, seed: int) -> None:
    content = spoil_bytes(model_file.to_bytes(model), random.Random(seed))
    refused(lambda: model_file.from_bytes(content, "m"), "cannot read the model m")


ANNOTATIONS = {
    "format": annotation_files.FORMAT,
    "version": annotation_files.VERSION,
    "run": "r",
    "clusters": [{"cluster": 0, "name": "a"}, {"cluster": 1, "into": 0}, {"cluster": 2, "noise": True}],
    "earlier": [],
}


def test_a_long_chain_of_merges(tmp_path: Path) -> None:
    chain = [{"cluster": number, "into": number + 1} for number in range(4095)]
    for entries, sound in ((chain, True), ([*chain, {"cluster": 4095, "into": 0}], False)):
        (tmp_path / "c.json").write_text(json.dumps(ANNOTATIONS | {"clusters": entries}))
        assert tolerated(lambda: annotation_files.read_annotations(tmp_path / "c.json", 4096, "r")) == sound


def test_out_of_memory_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for error in (
        MemoryError(),
        MemoryError("two\nlines"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 5 bytes"),
    ):

        def starve(*_: Any, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(show, "execute", starve)
        monkeypatch.setattr(Console, "print", starve)  # it may load more of itself
        assert cli.main(["show", "x"]) == 2
        message = capsys.readouterr().err
        assert message.startswith("cts: there is not enough memory")
        assert message.count("\n") == 1


SOURCES = sorted(Path(converge_to_surprise.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_nothing_unpickles_or_evaluates(path: Path) -> None:
    """No pickle, no evaluation of text, and numpy and torch are told so too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            assert not {"pickle", "dill", "joblib", "shelve", "marshal", "cloudpickle"} & {
                n.split(".")[0] for n in names
            }
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            arguments = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            assert called not in ("eval", "exec", "torch.load", "__import__"), called
            assert called != "np.load" or arguments.get("allow_pickle") == "False"
            assert arguments.get("shell") != "True"
