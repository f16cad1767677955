"""Exactly the images that will be read are announced to the operating system."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from converge_to_surprise.data.store import map_array, to_store
from converge_to_surprise.search import sampler

IMAGES = torch.zeros(3000, 1, 20, 20, dtype=torch.uint8)


@given(st.lists(st.tuples(st.integers(0, 2999), st.integers(1, 1500)), max_size=4))
def test_whole_pages_of_all_stretches_are_announced(requests: list[tuple[int, int]]) -> None:
    stretches = [(first, min(3000, first + count)) for first, count in requests]
    announced: list[tuple[int, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler, "_madvise", lambda start, length, _: announced.append((start, length)))
        sampler.announce(IMAGES, stretches)
    assert all(start % mmap.PAGESIZE == 0 and 0 < length <= sampler.PIECE for start, length in announced)
    announced.reverse()
    for first, last in stretches:
        start, stop = (IMAGES.data_ptr() + position * 400 for position in (first, last))
        reached, length = announced.pop()
        assert start - mmap.PAGESIZE < reached <= start
        while (reached := reached + length) < stop:
            following, length = announced.pop()
            assert following == reached
        assert reached == stop
    assert not announced


def test_the_operating_system_accepts_the_announcements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if sampler._madvise is None:
        pytest.skip("this system has no madvise")
    np.save(tmp_path / "x.npy", np.zeros((3000, 20, 20), np.uint8))
    images = to_store(map_array(tmp_path / "x.npy"), None, "x").images
    answers: list[int] = []
    call = sampler._madvise
    monkeypatch.setattr(sampler, "_madvise", lambda *arguments: answers.append(call(*arguments)))
    sampler.announce(images, [(0, 128), (2944, 3000)])
    assert answers == [0, 0]


def test_nothing_is_announced_of_slices_or_without_madvise(monkeypatch: pytest.MonkeyPatch) -> None:
    announced: list[int] = []
    monkeypatch.setattr(sampler, "_madvise", lambda start, *_: announced.append(start))
    sampler.announce(IMAGES[:, :, :10], [(0, 100)])
    sampler.announce(IMAGES[::2], [(0, 100)])
    assert not announced
    monkeypatch.setattr(sampler, "_madvise", None)
    sampler.announce(IMAGES, [(0, 100)])
