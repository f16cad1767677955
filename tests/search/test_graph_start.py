"""Heads that start from clusterings of the neighbor graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from support.configs import timeless
from torch import Tensor

from converge_to_surprise.config import Config, Relaxed, Stage
from converge_to_surprise.core.metrics import adjusted_rand_index
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.model.inference import label_views
from converge_to_surprise.model.network import ResNet9
from converge_to_surprise.search import graph_start, relaxed, schedule
from converge_to_surprise.search.neighbors import exact_neighbors
from converge_to_surprise.search.trainer import Trainer

STAGES = (
    Stage("graph 1", "graph", 2),
    Stage("search 1", "relaxed", 1),
    Stage("graph 2", "graph", 1),
    Stage("search 2", "relaxed", 1),
    Stage("merge", "merge", 1),
    Stage("refine", "refine", 1),
)
ROUNDS = (
    *(
        stage
        for number in range(1, 7)
        for stage in (
            Stage(f"graph {number}", "graph", 1, optional=number > 3),
            Stage(f"search {number}", "relaxed", 0.5, optional=number > 3),
        )
    ),
    Stage("merge", "merge", 1),
)


def islands(sizes: list[int], links: int = 4, seed: int = 0) -> tuple[Tensor, np.ndarray]:
    """Neighbors (N, links) that never lead from one island to another, in random order, and the islands (N,)."""
    rng = np.random.default_rng(seed)
    classes = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    rows = [rng.choice(np.flatnonzero(classes == own), links) for own in classes]
    return torch.from_numpy(np.stack(rows)), classes


def settings(**changes: object) -> Config:
    return Config(relaxed=replace(Relaxed(heads=4, batch_size=40), **changes))  # type: ignore[arg-type]


def test_islands_of_neighbors_are_clusters_the_largest_first() -> None:
    neighbors, classes = islands([60, 40, 20])
    found = graph_start.cluster_graph(neighbors, torch.arange(120), settings(resolutions=(0.01, 0.02)), 0)
    assert found.shape == (120, 4)
    for column in found.T.numpy():
        assert adjusted_rand_index(column, classes) == pytest.approx(1.0)
        assert np.bincount(column).tolist() == [60, 40, 20]


def test_finer_heads_have_more_clusters_and_the_same_seed_the_same_ones() -> None:
    images, _ = striped_images(200)
    trainer = Trainer(images, Config(schedule=STAGES, relaxed=Relaxed(heads=4, batch_size=40), threads=1))
    near = trainer.nearest_neighbors()
    config = settings()
    found = graph_start.cluster_graph(near, torch.arange(200), config, 3)
    counts = (found.amax(0) + 1).tolist()
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]
    assert torch.equal(found, graph_start.cluster_graph(near, torch.arange(200), config, 3))


def test_the_resolutions_have_equal_ratios() -> None:
    found = graph_start.resolutions(settings(resolutions=(0.5, 4.0)))
    assert found[1:] / found[:-1] == pytest.approx([2.0] * 3)
    assert graph_start.resolutions(settings(heads=1, resolutions=(1.0, 4.0))) == pytest.approx([2.0])


def test_a_network_grows_without_another_result() -> None:
    torch.manual_seed(0)
    network = ResNet9(1, 5, width=2, heads=3)
    views = torch.rand(20, 1, 8, 8)
    network.eval()
    before = network.logits(views)
    grown = network.grown(9)
    after = grown.logits(views)
    assert after.shape == (20, 3, 9)
    assert torch.equal(after[..., :5], before)
    assert torch.equal(after.argmax(-1), before.argmax(-1))
    assert network.n_outputs == 5, "the network itself is not changed"


@pytest.mark.parametrize("grow", [True, False])
def test_a_clustering_with_more_clusters_than_outputs(grow: bool) -> None:
    network = ResNet9(1, 3, width=2, heads=2)
    targets = torch.tensor([[0, 4], [2, 3], [1, 0]])
    fitting, wanted = graph_start.fit_outputs(network, targets, grow)
    assert fitting.n_outputs == (5 if grow else 3)
    assert wanted.tolist() == (targets.tolist() if grow else [[0, -1], [2, -1], [1, 0]])


@given(st.integers(1, 6), st.integers(1, 3), st.integers(2, 5), st.integers(0, 100))
def test_the_loss_is_the_mean_cross_entropy_of_both_views_summed_over_heads(
    images: int, heads: int, clusters: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    outputs = F.normalize(torch.randn(2 * images, heads, clusters, generator=generator), dim=-1)
    targets = torch.randint(-1, clusters, (images, heads), generator=generator)
    expected = 0.0
    for view in range(2 * images):
        for head in range(heads):
            target = int(targets[view % images, head])
            if target >= 0:
                weights = torch.exp(3.0 * outputs[view, head])
                expected -= float(torch.log(weights[target] / weights.sum())) / (2 * images)
    loss = graph_start.imitation_loss(outputs, targets, 3.0, images)
    assert float(loss) == pytest.approx(expected, abs=1e-5)
    halves = [
        graph_start.imitation_loss(
            torch.cat([outputs[:images][part], outputs[images:][part]]), targets[part], 3.0, images
        )
        for part in (slice(0, images // 2), slice(images // 2, None))
    ]
    assert float(sum(halves)) == pytest.approx(float(loss), abs=1e-5)


def clouds(seed: int, sizes: tuple[int, ...] = (60, 30, 50)) -> tuple[Tensor, Tensor]:
    """Points (n, 4) around centers, with another spread in each direction, and the cloud of each (n,)."""
    generator = torch.Generator().manual_seed(seed)
    clusters = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    centers = 4 * torch.randn(len(sizes), 4, generator=generator)
    spread = torch.tensor([0.3, 1.0, 2.0, 4.0])
    return centers[clusters] + spread * torch.randn(len(clusters), 4, generator=generator) + 10, clusters


@given(st.integers(0, 200))
def test_discriminants_are_those_of_scikit_learn(seed: int) -> None:
    points, clusters = clouds(seed)
    network = ResNet9(1, 5, width=2, heads=2)
    network = network.with_heads(torch.zeros(10, 4), torch.zeros(10), 2)
    targets = torch.stack([clusters, 4 - clusters], 1)  # two outputs of each head are not used
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_start, "RIDGE", 1e-9)
        heads = graph_start.discriminant_heads(network, points, targets)
    found = heads.outputs(points).argmax(-1)
    oracle = LinearDiscriminantAnalysis(solver="lsqr").fit(points.double().numpy(), clusters.numpy())
    decisions = oracle.decision_function(points.double().numpy()) - np.log(oracle.priors_)  # ours has no prior
    ordered = np.sort(decisions, 1)
    clear = torch.from_numpy(ordered[:, -1] - ordered[:, -2] > 1e-2)
    expected = torch.from_numpy(decisions.argmax(1))
    assert torch.equal(found[clear, 0], expected[clear])
    assert torch.equal(found[clear, 1], 4 - expected[clear])
    assert int(found[:, 0].max()) <= 2
    assert int(found[:, 1].min()) >= 2


def test_images_without_an_output_and_other_heads_do_not_count() -> None:
    points, clusters = clouds(3)
    network = ResNet9(1, 3, width=2, heads=2).with_heads(torch.zeros(6, 4), torch.arange(6.0), 2)
    partly = torch.where(torch.arange(len(clusters)) % 2 == 0, clusters, graph_start.UNASSIGNED)
    heads = graph_start.discriminant_heads(network, points, partly[:, None])
    known = graph_start.discriminant_heads(network, points[::2], clusters[::2, None])
    lines = heads.head.weight[:3] / known.head.weight[:3]
    torch.testing.assert_close(lines, lines[0, 0].expand_as(lines), rtol=1e-4, atol=0.0)
    assert torch.equal(heads.head.weight[3:], network.head.weight[3:])
    assert torch.equal(heads.head.bias[3:], network.head.bias[3:])


def test_entropies_of_clusterings() -> None:
    targets = torch.tensor([[0, 0], [1, 0], [0, 0], [1, 0]])
    assert graph_start.entropies(targets).tolist() == pytest.approx([np.log(2), 0.0])


def test_heads_start_as_discriminants_of_their_graph(small: Config) -> None:
    """A round does not have to unlearn the one before: after its first step heads have the new clusters."""
    images, _ = striped_images(200)
    settings = Relaxed(heads=3, batch_size=50, resolutions=(0.3, 1.0), grow=True)
    trainer = Trainer(images, replace(small, schedule=STAGES, relaxed=settings))
    for record in trainer.run():
        if record.stage == "graph 2":
            break
    assert trainer.targets is not None
    labels, _ = label_views(trainer.network, images, small.views)
    for found, wanted in zip(labels.T.numpy(), trainer.targets.T.numpy(), strict=True):
        assert adjusted_rand_index(found, wanted) > 0.4


def test_random_heads_maximize_the_surprise_while_others_imitate(small: Config) -> None:
    """Other targets change the step of the head that imitates, and not that of a head which does not."""
    images, _ = striped_images(40)
    config = replace(small, schedule=STAGES, relaxed=Relaxed(heads=1, random_heads=1, batch_size=40))
    changes = []
    for target in (0, 1):
        network = Trainer(images, config).network
        assert network.heads == config.heads == 2
        before = network.head.weight.detach().clone()
        pairs = relaxed.Pairs(images, images, torch.full((40, 1), target))
        optimizer = relaxed.new_optimizer(network, config)
        relaxed.relaxed_step(network, optimizer, pairs, config, relaxed.StepInfo(0, 100, 0.0, False))
        changes.append((network.head.weight.detach() - before).reshape(2, network.n_outputs, -1))
    assert not torch.equal(changes[0][0], changes[1][0])
    assert torch.equal(changes[0][1], changes[1][1])
    assert bool(changes[0][1].any())


def test_random_heads_must_have_as_many_clusters_as_the_graph_until_its_last_clustering(small: Config) -> None:
    images, _ = striped_images(80)
    config = replace(small, schedule=STAGES, relaxed=Relaxed(heads=4, random_heads=2, batch_size=40))
    trainer = Trainer(images, config)
    floors = {}
    steps = list(schedule.steps(trainer.config, len(images)))
    for record in trainer.run():
        if record.kind != "merge":
            floors[record.stage] = trainer._floor(steps[record.step])
        if record.stage == "graph 2":
            assert trainer.targets is not None
            found = graph_start.entropies(trainer.targets)
            floor = floors["graph 2"]
            assert floor is not None
            assert floor.tolist() == pytest.approx([0.0] * 4 + [float(found[0]), float(found[3])])
    assert floors["search 1"] is not None
    assert floors["search 2"] is None
    assert floors["refine"] is None


def test_heads_learn_the_clusters_of_the_graph(small: Config) -> None:
    images, _ = striped_images(200)
    stages = (Stage("graph", "graph", 12), Stage("search", "relaxed", 1))
    config = replace(small, schedule=stages, relaxed=Relaxed(heads=3, batch_size=50, resolutions=(0.3, 1.0)))
    trainer = Trainer(images, config)
    records = [record for record in trainer.run() if record.kind == "graph"]
    assert records[-1].surprise > 2 * records[0].surprise


@pytest.mark.parametrize("random_heads", [0, 2])
def test_a_run_with_graph_stages_continues_bit_for_bit_from_every_stage(small: Config, random_heads: int) -> None:
    images, _ = striped_images(80)
    settings = Relaxed(heads=2, random_heads=random_heads, batch_size=40, grow=True)
    config = replace(small, schedule=STAGES, relaxed=settings)
    trainer = Trainer(images, config)
    snapshots, records = [trainer.snapshot()], []
    for record in trainer.run():
        records.append(timeless(record))
        snapshots.append(trainer.snapshot())
    for position in (1, 4, 5, 6, 9):
        again = Trainer(images, config)
        again.restore(snapshots[position])
        assert [timeless(record) for record in again.run()] == records[position:]


def test_a_finer_graph_where_more_clusters_hold() -> None:
    """All resolutions are raised until the coarsest clustering has the clusters that are asked for."""
    generator = torch.Generator().manual_seed(0)
    points = torch.rand(400, 2, generator=generator)
    near = exact_neighbors(points, 8, 1)
    config = Config(relaxed=Relaxed(heads=4))

    def numbers(least: float) -> list[float]:
        found = graph_start.cluster_graph(near, torch.arange(400), config, 0, least)
        return graph_start.entropies(found).exp().tolist()

    coarse = numbers(0.0)
    assert numbers(0.9 * coarse[0]) == coarse
    finer = numbers(1.5 * coarse[0])
    assert finer[0] > 1.25 * coarse[0]
    assert finer[-1] > coarse[-1]


def test_no_factor_makes_resolutions_finer_than_the_finest() -> None:
    scale = np.array([0.5, 1.0, 2.0])
    assert graph_start.finer(np.array([3.0, 3.0, 5.0]), scale, 100.0) == 4.0
    assert graph_start.finer(np.array([3.0, 3.0, 3.0]), scale, 4.0) == 1.0  # no resolution has more


@pytest.mark.parametrize(
    ("held", "rounds"),
    [
        ([3, 3], 3),
        ([4, 5], 3),
        ([3, 5, 6], 3),
        ([3, 5, 7, 8], 4),
        ([2, 4, 8, 16, 32], 6),
        ([1, 9], 3),
        ([40, 40, 40, 40], 4),  # all that the coarsest head has
    ],
)
def test_rounds_go_on_while_more_clusters_hold(
    small: Config, monkeypatch: pytest.MonkeyPatch, held: list[int], rounds: int
) -> None:
    """Optional rounds are those after the third; each follows one that raised the number by more than a quarter,
    or after which all clusters of the coarsest head held.
    """
    images, _ = striped_images(80)
    config = replace(small, schedule=ROUNDS, relaxed=Relaxed(heads=2, batch_size=40, grow=True))
    trainer, numbers = Trainer(images, config), iter(zip(held, (41, 40, 40, 99, 99), strict=False))
    monkeypatch.setattr(trainer, "_number_that_holds", lambda step: next(numbers))
    ran = {record.stage for record in trainer.run()}
    assert ran == {"merge", *(f"{name} {n + 1}" for n in range(rounds) for name in ("graph", "search"))}
    assert trainer.step == trainer.total
    assert trainer.held == held


def test_a_run_with_optional_rounds_continues_bit_for_bit(small: Config) -> None:
    images, _ = striped_images(80)
    config = replace(small, schedule=ROUNDS, relaxed=Relaxed(heads=2, batch_size=40, grow=True))
    trainer = Trainer(images, config)
    snapshots, records = [trainer.snapshot()], []
    for record in trainer.run():
        records.append(timeless(record))
        snapshots.append(trainer.snapshot())
    assert len(trainer.held) >= 2
    for position in range(4, len(records)):
        again = Trainer(images, config)
        again.restore(snapshots[position])
        assert [timeless(record) for record in again.run()] == records[position:]
        assert again.held == trainer.held


def test_later_graphs_are_of_features(small: Config) -> None:
    images, _ = striped_images(80)
    trainer = Trainer(images, replace(small, schedule=STAGES, relaxed=Relaxed(heads=2, batch_size=40)))
    tables = {}
    for record in trainer.run():
        assert trainer.neighbors is not None
        tables[record.stage] = trainer.neighbors.clone()
    assert torch.equal(tables["graph 1"], trainer.nearest_neighbors())
    assert torch.equal(tables["search 1"], tables["graph 1"])
    assert not torch.equal(tables["graph 2"], tables["graph 1"])
    assert torch.equal(tables["search 2"], tables["graph 2"])


def test_near_duplicates_are_one_node_of_the_graph() -> None:
    """Pairs of copies that are linked to each other alone would be islands; as one node they have the links of the
    first.
    """
    near, islands_of = islands([60, 40, 20])
    copies, classes = torch.arange(240) // 2 * 2, islands_of.repeat(2)
    neighbors = (2 * near).repeat_interleave(2, 0)
    neighbors[1::2] = torch.arange(0, 240, 2)[:, None]  # the second of a pair has links to the first only
    found = graph_start.cluster_graph(neighbors, copies, settings(resolutions=(0.01, 0.02)), 0)
    assert torch.equal(found[::2], found[1::2])
    for column in found.T.numpy():
        assert adjusted_rand_index(column, classes) == pytest.approx(1.0)
