"""Similar images: the angle between centered features, and their reduced form for the page."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from converge_to_surprise.model.similarity import CODE_SIZE, SimilarityIndex


@given(st.integers(0, 10_000), st.integers(1, 30), st.integers(1, 6), st.integers(1, 40))
def test_nearest_are_those_of_the_slow_loop(seed: int, images: int, width: int, count: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    features, queries = (torch.randn(n, width, generator=generator).half() for n in (images, 70))
    found = SimilarityIndex.of(features).search(queries, count)
    assert found.images.shape == found.distances.shape == (70, min(count, images))
    mean = features.float().mean(0).tolist()

    def distance(a: list[float], b: list[float]) -> float:
        a, b = ([x - m for x, m in zip(v, mean, strict=True)] for v in (a, b))
        length = max(math.hypot(*a), 1e-12) * max(math.hypot(*b), 1e-12)
        return min(2.0, max(0.0, 1 - sum(x * y for x, y in zip(a, b, strict=True)) / length))

    for row in (0, 64, 69):
        every = [distance(queries[row].tolist(), one) for one in features.tolist()]
        assert torch.allclose(found.distances[row], torch.tensor(sorted(every)[:count]), atol=2e-3)
        assert all(abs(every[i] - d) < 2e-3 for i, d in zip(found.images[row], found.distances[row], strict=True))


def test_an_image_finds_itself_first() -> None:
    features = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    found = SimilarityIndex.of(features).search(features, 3)
    assert found.images[:, 0].tolist() == list(range(50))
    assert bool((found.distances[:, 0] < 1e-5).all())
    assert bool((found.distances.diff(dim=1) >= 0).all())


def test_codes_keep_the_nearest_images() -> None:
    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(12, 80, generator=generator)
    features = centers.repeat_interleave(5, 0) + 0.1 * torch.randn(60, 80, generator=generator)
    codes = torch.from_numpy(SimilarityIndex.of(features).codes()).double()
    assert codes.shape == (60, CODE_SIZE)
    assert int(codes.abs().max()) == 127
    distances = torch.cdist(codes, codes).fill_diagonal_(float("inf"))
    nearest = distances.topk(4, largest=False).indices
    assert bool((nearest // 5 == torch.arange(60)[:, None] // 5).all())


def test_features_that_are_all_the_same_have_codes_too() -> None:
    assert SimilarityIndex.of(torch.ones(4, 3)).codes().tolist() == [[0, 0, 0]] * 4
