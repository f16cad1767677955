"""The memory of a fit: estimated before it is taken, of the right order, and refused where it is not there."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converge_to_surprise import SurpriseClustering, cli
from converge_to_surprise.config import Config, SearchName, presets
from converge_to_surprise.search import memory_plan
from converge_to_surprise.search.memory_plan import check_fit_memory, estimate

MEASURE = """
import sys
from dataclasses import replace
import torch
from converge_to_surprise.config import Stage, presets
from converge_to_surprise.search.trainer import Trainer
from converge_to_surprise.search.memory_plan import estimate

def peak():
    '''The largest resident size since the last reset: that of ``getrusage`` begins with the parent process's.'''
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

count, side, kind = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
search = "evolution" if kind == "evolution" else None
config = presets.resolve("fast", search, "auto", count, (1, side, side))
config = replace(config, schedule=(Stage("only", kind, 1),), threads=2, device="cpu")
config = replace(config, network=replace(config.network, min_active_outputs=1))
images = torch.randint(0, 256, (count, 1, side, side), dtype=torch.uint8)
with open("/proc/self/clear_refs", "w") as reset:
    reset.write("5")
before = peak()
for _ in Trainer(images, config).run():
    pass
print(estimate(images.shape, config), peak() - before)
"""


def config_of(images: tuple[int, int, int, int], search: SearchName | None = None) -> Config:
    count, *shape = images
    config = presets.resolve("fast", search, "auto", count, (shape[0], shape[1], shape[2]))
    return replace(config, threads=2, device="cpu")


@pytest.mark.slow
@pytest.mark.subprocess
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize(("count", "side", "kind"), [(40, 128, "relaxed"), (60, 128, "evolution")])
def test_the_estimate_is_right_to_a_factor_of_two(count: int, side: int, kind: str) -> None:
    words = [sys.executable, "-c", MEASURE, str(count), str(side), kind]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    expected, measured = map(int, done.stdout.split())
    assert 0.5 < expected / measured < 2


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 2000), st.sampled_from([1, 3]), st.integers(8, 200), st.sampled_from(["relaxed", "evolution"]))
def test_more_images_and_more_pixels_take_more(count: int, channels: int, side: int, search: SearchName) -> None:
    config = config_of((count, channels, side, side), search)
    need = estimate((count, channels, side, side), config)
    assert need <= estimate((count + 100, channels, side, side), config)
    assert need < estimate((count, channels, side + 8, side), config)
    more = replace(config.relaxed, batch_size=2 * config.relaxed.batch_size)
    assert need <= estimate((count, channels, side, side), replace(config, relaxed=more))


@pytest.mark.parametrize(("images", "search"), [((3000, 1, 400, 400), None), ((3000, 3, 300, 200), "evolution")])
def test_what_is_proposed_fits(
    images: tuple[int, int, int, int], search: SearchName | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(images, search)
    free = estimate(images, config) // 3
    monkeypatch.setattr(memory_plan, "free_memory", lambda: free)
    with pytest.raises(ValueError, match="GB are free; give image_size") as refused:
        check_fit_memory(images, config)
    side = int(str(refused.value).split("image_size ")[1].split()[0])
    height, width = (round(length * side / max(images[2:])) for length in images[2:])
    assert estimate((*images[:2], height, width), config) <= free
    monkeypatch.setattr(memory_plan, "free_memory", lambda: estimate(images, config))
    check_fit_memory(images, config)


def test_a_smaller_batch_is_proposed_where_it_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    images = (400, 1, 64, 64)
    config = config_of(images)
    small, large = (replace(config, relaxed=replace(config.relaxed, batch_size=size)) for size in (250, 400))
    monkeypatch.setattr(memory_plan, "free_memory", lambda: estimate(images, small))
    with pytest.raises(ValueError, match=r"give image_size \d+ or settings relaxed.batch_size 200$"):
        check_fit_memory(images, large)


def test_nothing_begins_without_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    images = np.random.default_rng(0).integers(0, 256, (26, 200, 200), dtype=np.uint8)
    np.save(tmp_path / "x.npy", images)
    monkeypatch.setattr(memory_plan, "free_memory", lambda: 4 * 10**8)
    assert cli.main(["fit", str(tmp_path / "x.npy"), "--out", str(tmp_path / "run"), "--image-size", "200"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("cts: 26 images of 200x200 pixels need about ")
    assert "--image-size " in said
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match=r"need about \S+ GB of memory, but 0.4 GB are free; give image_s"):
        SurpriseClustering(image_size=200).fit(images)
