"""A search with several initializations is the most informative of the single ones, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from sklearn.metrics import mutual_info_score
from support.configs import few_initializations, stored, timeless, trained
from torch import Tensor

from converge_to_surprise.config import Config
from converge_to_surprise.core.rng import init_seed
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.model import inference
from converge_to_surprise.model.cluster_model import Model
from converge_to_surprise.model.inference import Outputs
from converge_to_surprise.model.network import flatten
from converge_to_surprise.runs.checkpoint import check_position, check_snapshot
from converge_to_surprise.search import schedule
from converge_to_surprise.search.restarts import Fitted, Restarts


@pytest.fixture(scope="module")
def few() -> Tensor:
    return striped_images(60)[0]


@pytest.fixture(scope="module")
def several(small: Config) -> Config:
    """Three short relaxed searches that end in different clusters."""
    return few_initializations(small, 3)


def searched(images: Tensor, config: Config) -> Restarts:
    """A search after its last step."""
    search = Restarts(images, config)
    for _ in search.run():
        pass
    return search


def same_outputs(found: Outputs | None, expected: Outputs | None) -> bool:
    if found is None or expected is None:
        return found is expected
    return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def same_networks(found: Model, expected: Model) -> bool:
    """Whether both models have the same weights, calibration and sizes before and after merging, bit for bit."""
    pairs = [(found.final, expected.final), (found.unmerged, expected.unmerged)]
    for ours, theirs in pairs:
        if ours is None or theirs is None:
            if ours is not theirs:
                return False
            continue
        states = (ours.network.state_dict(), theirs.network.state_dict())
        (sharpness, novelty), (their_sharpness, their_novelty) = ours.calibration, theirs.calibration
        if states[0].keys() != states[1].keys() or (sharpness, ours.sizes) != (their_sharpness, theirs.sizes):
            return False
        assert novelty is not None
        assert their_novelty is not None
        if not all(torch.equal(value, other) for value, other in zip(novelty, their_novelty, strict=True)):
            return False
        if not all(torch.equal(value, states[1][name]) for name, value in states[0].items()):
            return False
    return found.merge_result == expected.merge_result


def best_index(information: Sequence[float]) -> int:
    return list(information).index(max(information))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["relaxed", "evolution"])
def test_the_one_whose_views_tell_most_is_selected(
    kind: str, bars: Tensor, few: Tensor, small: Config, several: Config
) -> None:
    config, images = (several, few) if kind == "relaxed" else (replace(small, n_init=3), bars)
    single = [searched(images, replace(config, n_init=1, seed=init_seed(0, index))) for index in range(3)]
    fitted: list[Fitted] = [search.finish() for search in single]
    information = [mutual_info_score(found.outputs.view_i, found.outputs.view_j) for found in fitted]
    assert len(set(information)) > 1, "the initializations must differ for this to show anything"
    best = best_index(information)

    together = searched(images, config)
    assert together.summary() == {"seeds": [0, 1000, 2000], "information": pytest.approx(information), "selected": best}
    found, expected = together.finish(), fitted[best]
    assert same_networks(found.model, expected.model)
    assert same_outputs(found.outputs, expected.outputs)
    assert same_outputs(found.unmerged, expected.unmerged)
    assert (found.unmerged is None) == (kind == "evolution")
    assert not same_networks(found.model, fitted[(best + 1) % 3].model)


def test_a_single_initialization_is_that_of_the_trainer(few: Tensor, several: Config) -> None:
    config = replace(several, n_init=1, seed=4)
    search = searched(few, config)
    assert torch.equal(flatten(search.trainer.network), flatten(trained(few, config).network))
    assert search.summary() is None
    assert search.total == search.step == schedule.count_steps(config, len(few))


@pytest.mark.slow
def test_each_initialization_is_selected_for_some_seed(few: Tensor, several: Config) -> None:
    """Neither always the first nor always the last."""
    selected = set()
    for seed in range(6):
        summary = searched(few, replace(several, n_init=2, seed=seed)).summary()
        assert summary is not None
        selected.add(summary["selected"])
    assert selected == {0, 1}


@pytest.mark.slow
def test_records_are_those_of_the_single_searches_numbered_over_all(few: Tensor, several: Config) -> None:
    search = Restarts(few, several)
    seeds, records = [search.next_seed], []
    for record in search.run():
        records.append(record)
        seeds.append(search.next_seed)
    steps = search.total // 3
    single = [
        timeless(record)
        for index in range(3)
        for record in Restarts(few, replace(several, n_init=1, seed=init_seed(0, index))).run()
    ]
    views = single[steps - 1].views
    expected = [
        replace(
            record,
            step=number,
            stage=f"{record.stage} {number // steps + 1}/3",
            views=record.views + number // steps * views,
        )
        for number, record in enumerate(single)
    ]
    assert len(records) == search.total == search.step == 3 * schedule.count_steps(several, len(few))
    assert [timeless(record) for record in records] == expected
    assert all(a.seconds <= b.seconds for a, b in pairwise(records))
    assert {number: seed for number, seed in enumerate(seeds) if seed is not None} == {
        0: 0,
        steps: 1000,
        2 * steps: 2000,
    }


@pytest.mark.slow
def test_a_restored_search_continues_bit_for_bit_in_any_initialization(few: Tensor, several: Config) -> None:
    straight = Restarts(few, several)
    snapshots = [stored(straight.snapshot()), *(stored(straight.snapshot()) for _ in straight.run())]
    expected = straight.finish()
    for snapshot in snapshots:
        check_snapshot(snapshot, several, 1)
        check_position(snapshot, several, len(few))
    steps = straight.total // 3
    for position in (1, steps - 1, steps, steps + 1, 2 * steps, 3 * steps - 1, 3 * steps):
        search = Restarts(few, several)
        search.restore(snapshots[position])
        assert search.step == position
        for _ in search.run():
            pass
        end = stored(search.snapshot())
        assert end.tensors.keys() == snapshots[-1].tensors.keys()
        assert all(torch.equal(tensor, snapshots[-1].tensors[name]) for name, tensor in end.tensors.items())
        assert end.data | {"seconds": 0} == snapshots[-1].data | {"seconds": 0}
        found = search.finish()
        assert same_networks(found.model, expected.model)
        assert same_outputs(found.outputs, expected.outputs)
        assert same_outputs(found.unmerged, expected.unmerged)


def test_outputs_from_the_features_of_the_merge_are_those_of_the_images(several: Config) -> None:
    """The network before merging labels the images from the features that the merge computed: bit for bit the same.

    510 images are three chunks; the last one is so small that it is filled up by repetition.
    """
    images = striped_images(510)[0]
    config = replace(several, n_init=1, relaxed=replace(several.relaxed, batch_size=170))
    search = Restarts(images, config)
    search.keep = ("probabilities", "features")
    for _ in search.run():
        pass
    assert search.trainer.merge_features is not None, "the features must be known for this to show anything"
    model, outputs, unmerged = search.finish()
    assert model.unmerged is not None
    assert unmerged is not None
    assert len(set(unmerged.winner.tolist())) > 1
    for calibrated, found, keep in (
        (model.final, outputs, ("probabilities", "features")),
        (model.unmerged, unmerged, ("probabilities",)),
    ):
        expected = inference.run_all(calibrated.network, images, config.views, calibrated.calibration, keep)
        assert same_outputs(found, expected)


def test_finish_labels_the_images_once_per_network(
    few: Tensor, several: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two passes are needed for three initializations: the outputs of the selected one are known."""
    search = searched(few, several)
    passes: list[bool] = []
    run_all = inference.run_all

    def counted(*arguments: object) -> Outputs:
        assert isinstance(arguments[-1], inference.Known)
        passes.append(arguments[-1].features is not None)
        return run_all(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(inference, "run_all", counted)
    search.finish()
    assert passes == [True], "only the network before merging, and that from known features"
