"""Typical images of a cluster, and images at its boundary."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from support.picture_run import fit_pictures, make_pictures, table

from converge_to_surprise import SurpriseClustering
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.model.exemplars import Choices, find_exemplars


@st.composite
def choices(draw: st.DrawFn) -> Choices:
    count = draw(st.integers(0, 40))
    numbers = draw(st.lists(st.integers(-1, 3), min_size=count, max_size=count))
    steps = draw(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=count, max_size=count))
    sure, second = (torch.tensor([pair[side] for pair in steps]).float() / 16 + 0.5 * (1 - side) for side in (0, 1))
    return Choices(torch.tensor(numbers, dtype=torch.long), sure, torch.zeros(count, dtype=torch.long), second)


@given(choices(), st.integers(1, 6))
def test_exemplars_are_the_extremes_of_their_cluster(found: Choices, per_kind: int) -> None:
    rows = find_exemplars(found, per_kind)
    margin = (found.confidence - found.second_confidence).tolist()
    assert [row.cluster for row in rows] == sorted(row.cluster for row in rows)
    for cluster in set(found.cluster.tolist()) | {-1}:
        members = [k for k, number in enumerate(found.cluster.tolist()) if number == cluster]
        own = {
            kind: [row for row in rows if (row.cluster, row.kind) == (cluster, kind)]
            for kind in ("typical", "boundary")
        }
        images = [row.image for part in own.values() for row in part]
        if cluster < 0:
            assert images == []
            continue
        assert len(set(images)) == len(images) == min(len(members), 2 * per_kind)
        assert set(images) <= set(members)
        assert 0 <= len(own["typical"]) - len(own["boundary"]) <= 1
        for kind, sign in (("typical", 1), ("boundary", -1)):
            assert [row.rank for row in own[kind]] == list(range(1, len(own[kind]) + 1))
            shown = [sign * margin[row.image] for row in own[kind]]
            assert shown == sorted(shown, reverse=True)
            others = [sign * margin[k] for k in members if k not in images]
            assert not others or not shown or min(shown) >= max(others)


def test_exemplars_in_python_and_as_a_table(tmp_path: Path) -> None:
    pictures = make_pictures(tmp_path / "pictures")
    run = fit_pictures(pictures, tmp_path / "run")
    model, rows, labels = SurpriseClustering.load(run), table(run / "exemplars.csv"), table(run / "labels.csv")
    assert list(rows[0]) == ["cluster", "kind", "rank", "path", "confidence", "second", "second_confidence"]
    assert len(rows) == len(model.exemplars_) == sum(min(10, info["size"]) for info in model.cluster_info_)
    for row, one in zip(rows, model.exemplars_, strict=True):
        labeled = labels[one["image"]]
        assert (row["path"], row["cluster"], row["confidence"]) == tuple(
            labeled[k] for k in ("path", "cluster", "confidence")
        )
        assert (int(row["cluster"]), row["kind"], int(row["rank"])) == (one["cluster"], one["kind"], one["rank"])
        assert float(row["confidence"]) == pytest.approx(one["confidence"], abs=1e-6)
    typical = [one["confidence"] for one in model.exemplars_ if one["kind"] == "typical"]
    boundary = [one["confidence"] for one in model.exemplars_ if one["kind"] == "boundary"]
    assert np.mean(typical) > np.mean(boundary)
    assert model.cut(1).exemplars_[0]["cluster"] == 0


def test_positions_are_those_in_x(tmp_path: Path) -> None:
    paths = []
    for number, image in enumerate(striped_images(30)[0]):
        paths.append(tmp_path / f"{number:02d}.png")
        Image.fromarray(image[0].numpy()).save(paths[-1])
    paths[3].write_bytes(b"damaged")
    quick = {"schedule": ["search=relaxed:2", "merge=merge:1"], "views": {"upsample": 1}, "n_init": 1}
    model = SurpriseClustering(settings=quick, random_state=0, n_threads=1).fit(paths)
    assert all(model.labels_[one["image"]] == one["cluster"] for one in model.exemplars_)
    assert 3 not in {one["image"] for one in model.exemplars_}
    assert all(one["confidence"] == model.probabilities_[one["image"]] for one in model.exemplars_)
