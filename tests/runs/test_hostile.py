"""Files that someone made to do harm: each ends in a ValueError, soon, within bounded memory, and runs nothing."""

from __future__ import annotations

import ast
import contextlib
import gzip
import json
import random
import resource
import shutil
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from faults.harness import SETTINGS, source_of
from fuzz.forge import forged_checkpoint, forged_model, model_data
from fuzz.place import tolerated
from fuzz.spoil import idx, npy, npz, put, spoil_bytes, spoilt, whole_array
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

import converge_to_surprise
from converge_to_surprise import cli
from converge_to_surprise.config import Config, SettingError, Stage
from converge_to_surprise.config import files as configfile
from converge_to_surprise.config import memory as room
from converge_to_surprise.config.storage import LARGEST_JSON, read_json
from converge_to_surprise.data import datasets
from converge_to_surprise.data.idx import read_idx
from converge_to_surprise.model import model_file as modelfile
from converge_to_surprise.model.cluster_model import Model
from converge_to_surprise.runs import annotations as names
from converge_to_surprise.runs import checkpoint
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.runs.load import load_newest_model
from converge_to_surprise.search import schedule
from converge_to_surprise.search.snapshot import Snapshot

fuzz = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
slow_fuzz = settings(fuzz, max_examples=10)
"""For properties whose every example is a whole command."""


@contextlib.contextmanager
def modest(most: int = 64 << 20) -> Iterator[None]:
    """What happens inside takes no more memory than this."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def refused(use: Callable[[], object], match: str | None = None) -> None:
    with modest(), pytest.raises(ValueError, match=match):
        use()


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


# Configuration


def deep(text: str) -> str:
    return text * 100_000


HOSTILE_JSON = {
    "nested lists": deep("["),
    "nested and closed": deep("[") + deep("]"),
    "nested objects": deep('{"a":'),
    "NaN": '{"seed": NaN}',
    "Infinity": '{"checkpoint_seconds": Infinity}',
    "minus Infinity": '{"checkpoint_seconds": -Infinity}',
    "a number of 5,000 digits": '{"seed": ' + "9" * 5000 + "}",
    "a number too large for a float": '{"checkpoint_seconds": 1e999}',
    "eternity": '{"schedule": ["x=evolution:1000000000000000000"]}',
    "a stage that is a number": '{"schedule": [5]}',
    "a stage of stages": '{"schedule": [["x=evolution:1"]]}',
    "a population of 1e30": '{"evolution": {"population": 1000000000000000000000000000000}}',
    "a ramp of 1e400": '{"evolution": {"ramp_epochs": 1' + "0" * 400 + "}}",
    "a zoom of 1e30": '{"augmentation": {"zoom_out": [0, 1000000000000000000000000000000]}}',
    "bytes that are no text": "\udcff\udcfe",
    "a lone surrogate": '{"device": 5, "\\ud800": 1}',
}


@pytest.mark.parametrize("name", HOSTILE_JSON)
def test_hostile_configurations(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(HOSTILE_JSON[name].encode("utf-8", "surrogateescape"))
    refused(lambda: configfile.overlay(Config(), configfile.read(path)))
    assert cli.main(["fit", "digits", "--out", str(tmp_path / "run"), "--config", str(path)]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert message.startswith("cts: ")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("text", [deep("a = ["), deep("a."), "a = nan\nseed = inf", "seed = 0x" + "f" * 5000])
def test_hostile_toml(text: str, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"."):
        configfile.overlay(Config(), configfile.read(path))


def test_endless_files_are_not_read_to_the_end(tmp_path: Path) -> None:
    for name in ("c.toml", "c.json"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 40)  # a hole: it takes no room on the disk
    refused(lambda: configfile.read(tmp_path / "c.toml"), "more than 1,048,576 bytes")
    with pytest.raises(ValueError, match=f"more than {LARGEST_JSON:,} bytes"):
        read_json(tmp_path / "c.json")


@fuzz
@given(st.text(alphabet="ab=:@019-. \0\n", max_size=30))
def test_any_word_as_a_stage(word: str) -> None:
    tolerated(lambda: Stage.parse(word))


def test_a_schedule_is_counted_without_walking_through_it() -> None:
    config = Config(schedule=(Stage("long", "evolution", 10**9, 10**9, 1), Stage("m", "merge", 10**9)))
    assert schedule.count_steps(config, 60_000) == 10**9 * 20 + 10**18 + 1
    with pytest.raises(SettingError, match="epochs of stage x is 1000000001; it must be at most 1,000,000,000"):
        Stage("x", "evolution", 10**9 + 1)


STAGES = st.builds(
    lambda kind, epochs, passes, every: Stage("s", kind, epochs, *((passes, every) if kind == "evolution" else ())),
    st.sampled_from(["evolution", "relaxed", "merge", "refine", "consolidate"]),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 4),
)


@fuzz
@given(st.lists(STAGES, min_size=1, max_size=4), st.integers(1, 7000))
def test_the_count_is_that_of_the_steps(stages: list[Stage], images: int) -> None:
    config = Config(schedule=tuple(stages))
    assert schedule.count_steps(config, images) == sum(1 for _ in schedule.steps(config, images))


# The run folder


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
    assert f"{run.history} is damaged: 2 of its first {len(lines)} records are lost for good" in warning
    assert run.history.read_bytes() == b"".join(line for number, line in enumerate(lines) if number not in (3, 5))


def test_a_checkpoint_cannot_ask_for_a_huge_network(run: RunFolder) -> None:
    whole, _ = checkpoint.load_newest(run.checkpoints, run.description().identity)
    assert whole is not None
    for change in ({"clusters": 10**9}, {"heads": 10**9}, {"clusters": 4096, "heads": 256}):
        forged_checkpoint(run, whole.tensors, whole.data | change)
        refused(lambda: load_newest_model(run), "cannot be right")


def test_a_configuration_cannot_ask_for_more_than_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "free_memory", lambda: 100_000_000)
    words = [
        "--network.width",
        "512",
        "--network.n_outputs",
        "4096",
        "--relaxed.heads",
        "256",
        "--relaxed.batch-size",
        "10",
    ]
    assert cli.main(["fit", "digits", "--out", str(tmp_path / "run"), *words]) == 2
    assert not (tmp_path / "run").exists()


def test_every_bit_of_a_checkpoint_counts(tmp_path: Path) -> None:
    """A flipped bit is noticed, or was in the white space."""
    snapshot = Snapshot(
        {"x": torch.arange(4.0)}, {"step": 7, "seconds": 1.5, "merged": {"boundaries": {2: 0.5, 10: 0.1}}}
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


def test_checkpoints_of_version_1_are_read(tmp_path: Path) -> None:
    snapshot = Snapshot({"x": torch.arange(4.0)}, {"step": 7})
    path = checkpoint.save(tmp_path, snapshot, "run")
    about = json.loads(path.read_text())
    digest = checkpoint._checksum(path.with_suffix(".safetensors").read_bytes(), 1, "", {})
    path.write_text(json.dumps(about | {"version": 1, "sha256": digest}))
    assert checkpoint.load(path, "run").data == snapshot.data


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
    digest = checkpoint._checksum(content, checkpoint.VERSION, "", about["data"])
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


# Arrays


HEADERS = [
    "{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000, 8, 8)}",
    "{'descr': '|u1', 'fortran_order': False, 'shape': (18446744073709551616, 8, 8)}",
    "{'descr': '|u1', 'fortran_order': False, 'shape': (4294967296, 4294967296, 1)}",
    "{'descr': '|u1', 'fortran_order': False, 'shape': (-1, 8, 8)}",
    "{'descr': '|u1', 'fortran_order': False, 'shape': (0, 9223372036854775807, 8)}",
    "{'descr': '|V0', 'fortran_order': False, 'shape': (9223372036854775807, 1, 1)}",
    "{'descr': '|O', 'fortran_order': False, 'shape': (2, 8, 8)}",
    "{'descr': '|S0', 'fortran_order': False, 'shape': (2, 8, 8)}",
    "{'descr': [('a', '|u1'), ('b', '<f4')], 'fortran_order': False, 'shape': (2, 8, 8)}",
    "{'descr': '<M8[s]', 'fortran_order': True, 'shape': (2, 8, 8)}",
    "{'descr': '<c16', 'fortran_order': True, 'shape': (2, 8, 8)}",
    "{'descr': '|u1', 'fortran_order': 5, 'shape': (2, 8, 8)}",
    "{'descr': '|u1', 'fortran_order': False, 'shape': 5}",
    "{'descr': '|u1', 'shape': (2, 8, 8)}",
    "__import__('os').system('true')",
    "(" * 5000,
    "'" * 3,
    "",
]


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("version", [b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"])
def test_hostile_arrays(tmp_path: Path, header: str, version: bytes) -> None:
    array = npy(header, bytes(100), version)
    (tmp_path / "a.npy").write_bytes(array)
    (tmp_path / "a.npz").write_bytes(npz(images=array))
    for name in ("a.npy", "a.npz"):
        refused(lambda name=name: datasets.load(str(tmp_path / name)), rf"{name}")  # type: ignore[misc]


def test_an_archive_that_unpacks_to_more_than_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.npz"
    path.write_bytes(npz(images=whole_array((50_000, 32, 32))))
    assert path.stat().st_size < 200_000
    monkeypatch.setattr(room, "free_memory", lambda: 50_000_000)
    refused(lambda: datasets.load(str(path)), "says that it holds 51,200,128 bytes, too much for the 50,000,000")


def test_an_array_for_which_there_is_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(npz(images=whole_array((5, 4, 4))))
    monkeypatch.setattr(np.lib.format, "read_array", Mock(side_effect=MemoryError("Unable to allocate 156. MiB")))
    refused(lambda: datasets.load(str(path)), "there is not enough memory to read .*a.npz: Unable to allocate 156. MiB")


def test_what_is_not_asked_for_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    images = np.random.default_rng(0).integers(0, 255, (5, 4, 4), np.uint8)
    np.savez_compressed(path, images=images, bomb=np.zeros(100_000_000, np.uint8))
    with modest():
        assert len(datasets.load(str(path)).train) == 5


@pytest.mark.parametrize("labels", ["|V8", "|O", "<c16", "<M8[s]", "|S0", "<f8", "|b1", "<U3", "|i1", "<u8"])
def test_labels_of_every_kind(tmp_path: Path, labels: str) -> None:
    array = npy(f"{{'descr': '{labels}', 'fortran_order': False, 'shape': (5,)}}", b"\xff" * 5 * 16)
    (tmp_path / "a.npz").write_bytes(npz(images=whole_array((5, 4, 4)), labels=array))
    tolerated(lambda: datasets.load(str(tmp_path / "a.npz")))


def test_members_that_are_encrypted_or_packed_strangely(tmp_path: Path) -> None:
    content = bytearray(npz(images=whole_array((5, 4, 4))))
    for offset, value in ((6, 1), (8, 99), (8, 14), (8, 12)):  # a flag: encrypted; unknown method, LZMA, BZIP2
        spoilt_archive = content.copy()
        spoilt_archive[offset] = value
        spoilt_archive[content.index(b"PK\x01\x02") + offset + 2] = value
        (tmp_path / "a.npz").write_bytes(spoilt_archive)
        refused(lambda: datasets.load(str(tmp_path / "a.npz")), "cannot read")


# IDX


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    "content",
    [
        idx(8, 2**32 - 1, 2**32 - 1, 2**32 - 1),
        idx(0x0E, 2**32 - 1, 28, 28, content=bytes(1000)),
        idx(8, *[1] * 255),
        idx(8, *[2**32 - 1] * 255),
        bytes([0, 0, 8, 255]),
        idx(8, 5, 4, 4, content=bytes(5 * 4 * 4 + 1)),
        idx(8, 5, 4, 4, content=bytes(5 * 4 * 4 - 1)),
        b"",
    ],
)
def test_hostile_idx(tmp_path: Path, content: bytes, ending: str) -> None:
    path = tmp_path / f"train-images-idx3-ubyte{ending}"
    path.write_bytes(gzip.compress(content) if ending else content)
    refused(lambda: read_idx(path), path.name)


def test_gzip_that_unpacks_to_more_than_it_says(tmp_path: Path) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(idx(8, 5, 4, 4) + bytes(300_000_000), 1))
    refused(lambda: read_idx(path), "more than 80 bytes of content")


def test_gzip_that_unpacks_to_more_than_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(idx(8, 50_000, 32, 32) + bytes(50_000 * 1024), 9))
    monkeypatch.setattr(room, "free_memory", lambda: 50_000_000)
    refused(lambda: read_idx(path), "too much for the 50,000,000 bytes")


# What a run hands on: its model, the names of its clusters; and tables of pictures


@pytest.fixture(scope="module")
def model(finished: RunFolder) -> Model:
    return modelfile.load(finished.model)[0]


def test_a_model_cannot_ask_for_a_huge_network(model: Model) -> None:
    data = model_data(modelfile.to_bytes(model))
    huge = put(data, ("labelers", "final", "clusters"), 10**9)
    wide = put(data, ("config", "network", "width"), 512)
    for data in (huge, wide):
        forged = forged_model(modelfile.to_bytes(model), data)
        refused(lambda forged=forged: modelfile.from_bytes(forged, "m"), "cannot be right")  # type: ignore[misc]


@fuzz
@given(st.integers(0, 2**32))
def test_spoilt_models(model: Model, seed: int) -> None:
    content = spoil_bytes(modelfile.to_bytes(model), random.Random(seed))
    refused(lambda: modelfile.from_bytes(content, "m"), "cannot read the model m")


NAMES = {
    "format": names.FORMAT,
    "version": names.VERSION,
    "run": "r",
    "clusters": [{"cluster": 0, "name": "a"}, {"cluster": 1, "into": 0}, {"cluster": 2, "noise": True}],
    "earlier": [],
}


def test_a_long_chain_of_merges(tmp_path: Path) -> None:
    chain = [{"cluster": number, "into": number + 1} for number in range(4095)]
    for entries in (chain, [*chain, {"cluster": 4095, "into": 0}]):
        (tmp_path / "c.json").write_text(json.dumps(NAMES | {"clusters": entries}))
        tolerated(lambda: names.read_annotations(tmp_path / "c.json", 4096, "r"))


# The program


def test_out_of_memory_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for error in (
        MemoryError(),
        MemoryError("two\nlines"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 5 bytes"),
    ):

        def starve(*_: Any, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(cli, "show", starve)
        monkeypatch.setattr(Console, "print", starve)  # it may load more of itself
        assert cli.main(["show", "x"]) == 2
        message = capsys.readouterr().err
        assert message.startswith("cts: there is not enough memory")
        assert message.count("\n") == 1


def test_free_memory_is_plausible() -> None:
    assert 10_000_000 < room.free_memory() <= 2**50
    assert resource.getpagesize() > 0


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
