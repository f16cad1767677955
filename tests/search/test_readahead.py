"""What will be read is announced, all of it and nothing else."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from converge_to_surprise.data.store import map_array, to_store
from converge_to_surprise.search import readahead

IMAGES = torch.zeros(3000, 1, 20, 20, dtype=torch.uint8)


@given(st.lists(st.tuples(st.integers(0, 2999), st.integers(1, 1500)), max_size=4))
def test_whole_pages_of_all_stretches_are_announced(wishes: list[tuple[int, int]]) -> None:
    stretches = [(first, min(3000, first + count)) for first, count in wishes]
    heard: list[tuple[int, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readahead, "_madvise", lambda start, length, _: heard.append((start, length)))
        readahead.announce(IMAGES, stretches)
    assert all(start % mmap.PAGESIZE == 0 and 0 < length <= readahead.PIECE for start, length in heard)
    heard.reverse()
    for first, last in stretches:
        start, stop = (IMAGES.data_ptr() + position * 400 for position in (first, last))
        reached, length = heard.pop()
        assert start - mmap.PAGESIZE < reached <= start
        while (reached := reached + length) < stop:
            following, length = heard.pop()
            assert following == reached
        assert reached == stop
    assert not heard


def test_the_system_takes_the_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if readahead._madvise is None:
        pytest.skip("this system takes no advice")
    np.save(tmp_path / "x.npy", np.zeros((3000, 20, 20), np.uint8))
    images = to_store(map_array(tmp_path / "x.npy"), None, "x").images
    answers: list[int] = []
    ask = readahead._madvise
    monkeypatch.setattr(readahead, "_madvise", lambda *wish: answers.append(ask(*wish)))
    readahead.announce(images, [(0, 128), (2944, 3000)])
    assert answers == [0, 0]


def test_without_the_call_and_without_whole_images_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[int] = []
    monkeypatch.setattr(readahead, "_madvise", lambda start, *_: heard.append(start))
    readahead.announce(IMAGES[:, :, :10], [(0, 100)])
    readahead.announce(IMAGES[::2], [(0, 100)])
    assert not heard
    monkeypatch.setattr(readahead, "_madvise", None)
    readahead.announce(IMAGES, [(0, 100)])
