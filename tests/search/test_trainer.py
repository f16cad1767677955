from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.configs import CLIMBING, trained
from torch import Tensor

from converge_to_surprise.config import Augmentation, Config, Evolution, Guided, Network, Relaxed, Stage, StageKind
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.model.inference import label_views
from converge_to_surprise.model.network import flatten
from converge_to_surprise.search.trainer import Trainer


def climb(images: Tensor, seed: int) -> tuple[float, float]:
    """S of the mean network at the start and at the end of evolution, each averaged over four steps."""
    records = list(Trainer(images, replace(CLIMBING, seed=seed)).run())
    scores = [record.surprise for record in records]
    return float(np.mean(scores[:4])), float(np.mean(scores[-4:]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_evolution_raises_the_surprise(seed: int) -> None:
    start, end = climb(striped_images(200)[0], seed)
    assert end > start + 0.1
    assert end > 3 * start


@pytest.mark.slow
def test_noise_is_never_surprising() -> None:
    rng = np.random.default_rng(0)
    noise = torch.from_numpy(rng.integers(0, 256, (200, 1, 8, 8)).astype(np.uint8))
    _, end = climb(noise, 0)
    assert end < 0.05


def test_a_run_is_determined_by_its_seed(bars: Tensor, small: Config) -> None:
    def final(config: Config) -> Tensor:
        return flatten(trained(bars, config).network)

    first = final(small)
    assert torch.equal(first, final(small))
    assert not torch.equal(first, final(replace(small, seed=1)))
    # The chunk size and the number of threads affect only the speed of evolution.
    pure = replace(small, schedule=(Stage("explore", "evolution", 3),))
    other = replace(pure, threads=2, evolution=replace(pure.evolution, chunk_size=13))
    torch.testing.assert_close(final(pure), final(other), rtol=0, atol=0)


@pytest.mark.slow
def test_any_score_can_be_maximized(bars: Tensor) -> None:
    """Also the number of distinct labels, which has no gradient."""

    def variety(labels_i: Tensor, labels_j: Tensor) -> float:
        return float(len(set(labels_i.tolist()) | set(labels_j.tolist())))

    config = replace(CLIMBING, max_clusters=16, network=Network(width=4, min_active_outputs=1))
    records = list(Trainer(bars, config, score=variety).run())
    active = [record.active for record in records]
    assert np.mean(active[-4:]) > np.mean(active[:4]) + 2


def test_orderliness_climbs_if_it_is_the_score(bars: Tensor) -> None:
    settings = replace(CLIMBING.evolution, score="orderliness")
    config = replace(CLIMBING, schedule=(Stage("explore", "evolution", 20),), evolution=settings)
    records = list(Trainer(bars, config).run())
    order = [record.orderliness for record in records]
    assert np.mean(order[-4:]) > np.mean(order[:4]) + 0.1


@pytest.mark.parametrize("kind", ["evolution", "guided"])
def test_the_score_of_the_documentation_climbs(
    kind: StageKind, bars: Tensor, capsys: pytest.CaptureFixture[str]
) -> None:
    """A surprise of two labels per view; the page's own lines are run."""
    page = (Path(__file__).parents[2] / "docs/howto/backbone.md").read_text(encoding="utf-8")
    (lines,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def two_labels" in block)
    config = replace(CLIMBING, schedule=(Stage("explore", kind, 12),), max_clusters=64)
    space: dict[str, Any] = {"images": bars, "config": config}
    exec(lines, space)
    assert len(capsys.readouterr().out.splitlines()) == space["trainer"].total

    def reached(trainer: Trainer) -> float:
        return float(space["two_labels"](*label_views(trainer.network, bars, config.views)))

    assert reached(space["trainer"]) > reached(Trainer(bars, config)) + 0.1


@pytest.mark.parametrize("channels", [1, 3])
def test_there_is_one_record_per_step(channels: int, small: Config) -> None:
    images = striped_images(120, side=9)[0].repeat(1, channels, 1, 1)
    trainer = Trainer(images, small)
    records = list(trainer.run())
    assert len(records) == trainer.total
    assert [record.step for record in records] == list(range(trainer.total))
    evolved = [record for record in records if record.kind == "evolution"]
    assert evolved[0].views == 2 * 60 * (small.evolution.population + 1)
    for record in records:
        assert record.surprise >= 0
        assert record.orderliness >= 1
        assert 0 <= record.agreement <= 1
        assert record.surprising <= record.active <= small.max_clusters
    assert all(a.seconds <= b.seconds and a.views <= b.views for a, b in pairwise(records))


def relaxed_config(small: Config) -> Config:
    stages = (
        Stage("search", "relaxed", 3),
        Stage("merge", "merge", 1),
        Stage("refine", "refine", 1),
        Stage("settle", "consolidate", 2),
    )
    return replace(small, schedule=stages, relaxed=Relaxed(heads=2, batch_size=40))


def guided_config(small: Config) -> Config:
    stages = (
        Stage("explore", "guided", 2),
        Stage("strong", "guided", 1, passes=1, every=1),
        Stage("merge", "merge", 1),
    )
    return replace(small, schedule=stages, guided=Guided(gradients=2, updates=1, batch_size=30))


@pytest.mark.parametrize("kind", ["evolution", "guided", "relaxed"])
def test_a_restored_trainer_continues_bit_for_bit(kind: str, bars: Tensor, small: Config) -> None:
    config = {"evolution": small, "guided": guided_config(small), "relaxed": relaxed_config(small)}[kind]
    straight = Trainer(bars, config)
    snapshots = [straight.snapshot()]
    snapshots.extend(straight.snapshot() for _ in straight.run())
    for snapshot in snapshots[:-1]:
        trainer = Trainer(bars, config)
        trainer.restore(snapshot)
        for _ in trainer.run():
            pass
        end = trainer.snapshot()
        assert end.tensors.keys() == snapshots[-1].tensors.keys()
        for name, tensor in end.tensors.items():
            assert torch.equal(tensor, snapshots[-1].tensors[name]), name
        assert end.data | {"seconds": 0} == snapshots[-1].data | {"seconds": 0}


def test_the_process_wide_generators_are_restored(bars: Tensor, small: Config) -> None:
    """A user's score may draw from them."""
    trainer = Trainer(bars, small)
    saved = trainer.snapshot()
    drawn = (torch.rand(3).tolist(), np.random.rand(3).tolist())  # noqa: NPY002
    trainer.restore(saved)
    assert (torch.rand(3).tolist(), np.random.rand(3).tolist()) == drawn  # noqa: NPY002


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"evolution": Evolution(batch_size=121)}, r"evolution.batch_size is 121 but there are only 120 images"),
        ({"augmentation": Augmentation(crop=8)}, "augmentation.crop is 8 but the views are only 8"),
        ({"network": Network(hidden=4, pixels=49)}, "network.pixels is 49 but a view has 64 values; set it to 64"),
        ({"evolution": Evolution(batch_size=60, score="luck")}, "unknown score 'luck'"),
    ],
)
def test_settings_that_do_not_fit_the_images_are_refused(
    change: dict[str, object], message: str, bars: Tensor, small: Config
) -> None:
    with pytest.raises(ValueError, match=message):
        Trainer(bars, replace(small, **change))  # type: ignore[arg-type]


def test_images_of_another_type_are_refused(small: Config) -> None:
    with pytest.raises(ValueError, match=r"torch.float32 of shape \(5, 8, 8\)"):
        Trainer(torch.zeros(5, 8, 8), small)
