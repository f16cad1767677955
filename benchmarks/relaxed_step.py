"""How fast is one step of the relaxed search, as a share of the network's bare forward and backward pass?

    python benchmarks/relaxed_step.py [--batch 250] [--threads 2] [--rounds 5] [--fit digits] [--save FILE]

Prints views per second of

- bare: forward and backward pass of the network over the same number of views, all of them ready, at the best of
        several batch sizes (that is, of working sets);
- step: a whole training step as the trainer does it: partners, chessboard split, filling, augmentation, network,
        softmax, score, backward pass, optimizer, and the measures of the record;

and what else could raise the bare figure: the unfolded network of the paper, BatchNorm that is fused with ReLU by
``torch.compile`` if there is a compiler, and two processes of one thread in place of one of two. Bare and step
alternate, so that both see the same machine; each figure is the median of the rounds. With ``--fit`` a whole run of
the fast preset follows, with its report, and where its time went. ``--save benchmarks/results/speed.csv`` appends
the figures to that file.
"""

from __future__ import annotations

import multiprocessing
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path

import rows
import torch
from torch import Tensor

from converge_to_surprise.config import Config, Network, Stage, presets
from converge_to_surprise.data import datasets
from converge_to_surprise.model.backbone import random_network
from converge_to_surprise.model.network import ClusterNetwork, channels_last
from converge_to_surprise.report.page import write_report
from converge_to_surprise.runs import session
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.search import population
from converge_to_surprise.search.threads import available_threads
from converge_to_surprise.search.trainer import Trainer

SIDE = 28
IMAGES = 5000
BATCHES = (125, 250, 500, 1000)
_begin: Barrier
"""Where the processes of one thread wait for each other."""


def median_speeds(ways: dict[str, tuple[Callable[[], object], int]], rounds: int) -> dict[str, float]:
    """Views per second of each way, all of them taking turns; with the number of views of each."""

    def repeated(work: Callable[[], object], views: int) -> None:
        for _ in range(max(2, 2000 // views)):
            work()

    found = rows.taking_turns({name: partial(repeated, *way) for name, way in ways.items()}, rounds, warm=True)
    return {n: ways[n][1] * max(2, 2000 // ways[n][1]) / statistics.median(seconds) for n, seconds in found.items()}


def bare_step(network: ClusterNetwork, views: Tensor) -> Callable[[], None]:
    """Forward and backward on views that are ready."""

    def work() -> None:
        network.zero_grad(set_to_none=True)
        network(views).square().sum().backward()

    return work


def a_network(space_to_depth: bool) -> ClusterNetwork:
    return random_network(Config(network=Network(space_to_depth=space_to_depth)), 1, 8).train()


def some_views(count: int) -> Tensor:
    return channels_last(torch.rand(count, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0)))


def compiled_speed(batch: int) -> float | None:
    """Views per second with ``torch.compile``, or None without a compiler."""
    if shutil.which("c++") is None and shutil.which("g++") is None:
        return None
    network = a_network(space_to_depth=True)
    network.features = torch.compile(network.features)  # type: ignore[method-assign]
    work = bare_step(network, some_views(batch))
    try:
        work()
    except Exception as error:  # whatever a compiler may say: the figure is optional
        print(f"torch.compile failed: {type(error).__name__}", file=sys.stderr)
        return None
    return median_speeds({"compiled": (work, batch)}, 1)["compiled"]


def _worker(batch: int, seconds: float) -> float:
    """Views per second of a process of one thread."""
    torch.set_num_threads(1)
    population.keep_small_blocks()
    work = bare_step(a_network(space_to_depth=True), some_views(batch))
    work()
    _begin.wait()
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        work()
        count += batch
    return count / (time.perf_counter() - began)


def _share(barrier: Barrier) -> None:
    global _begin
    _begin = barrier


def processes_speed(processes: int, batch: int, seconds: float = 4.0) -> float:
    """Views per second of several processes of one thread together: what averaged gradients could at most reach."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=_share, initargs=(context.Barrier(processes),)) as pool:
        return sum(pool.map(_worker, [batch] * processes, [seconds] * processes))


def trainer_steps(batch: int, threads: int) -> tuple[Iterator[object], int]:
    """The records of a search that never ends within this benchmark, and the views of a step."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (IMAGES, 1, SIDE, SIDE), dtype=torch.uint8, generator=generator)
    config = presets.resolve("fast", None, "mnist", IMAGES, (1, SIDE, SIDE))
    stages = (Stage("search", "relaxed", 10_000),)
    config = replace(config, threads=threads, schedule=stages, relaxed=replace(config.relaxed, batch_size=batch))
    return Trainer(images, config).run(), 2 * batch


def stages_of_a_fit(source: str, data_dir: Path | None, threads: int) -> dict[str, float]:
    """Seconds of a whole run by what they were spent on."""
    dataset = datasets.load(source, data_dir)
    images = dataset.train.images
    channels, height, width = images.shape[1:]
    config = presets.resolve("fast", None, dataset.name, len(images), (channels, height, width))
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder) / "run")
        began = time.perf_counter()
        origin = session.Origin(source, "fast", data_dir)
        search = session.begin(run, dataset, origin, replace(config, threads=threads))
        spent = {"start": time.perf_counter() - began}
        session.train(run, search, dataset, [])
        whole = time.perf_counter() - began
        before, stage = 0.0, ""
        for record in run.records():
            # The first step of a search looks for neighbors; that is a labeling pass too.
            first, stage = record["stage"] != stage, record["stage"]
            kind = "neighbors" if first and record["kind"] in ("relaxed", "refine") else record["kind"]
            spent[kind] = spent.get(kind, 0.0) + record["seconds"] - before
            before = record["seconds"]
        spent["files, records, last labeling"] = whole - sum(spent.values())
        began = time.perf_counter()
        write_report(run, dataset.train)
        spent["report"] = time.perf_counter() - began
    return spent


def main() -> None:
    parser = rows.parser(__doc__, batch=250, threads=available_threads(), rounds=5)
    parser.add_argument("--fit", default="", help="a data set: also run it whole and show where the time went")
    parser.add_argument("--data-dir", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    population.keep_small_blocks()
    ways: dict[str, tuple[Callable[[], object], int]] = {
        f"bare, batch {batch}": (bare_step(a_network(True), some_views(batch)), batch) for batch in BATCHES
    }
    ways["bare, the paper's network"] = (bare_step(a_network(False), some_views(500)), 500)
    records, views = trainer_steps(options.batch, options.threads)
    ways["step"] = (lambda: next(records), views)
    speed = median_speeds(ways, options.rounds)
    if (compiled := compiled_speed(500)) is not None:
        speed["bare, torch.compile"] = compiled
    if options.threads > 1:
        speed[f"bare, {options.threads} processes of one thread"] = processes_speed(options.threads, 500)
    bare = max(speed[f"bare, batch {batch}"] for batch in BATCHES)
    figures = {
        "bare forward and backward pass": (bare, "views/s"),
        "step / bare": (speed["step"] / bare, "ratio"),
        **{name: (value, "views/s") for name, value in speed.items()},
    }
    if options.fit:
        spent = stages_of_a_fit(options.fit, options.data_dir, options.threads)
        figures |= {f"fit {options.fit}: {name}": (seconds, "s") for name, seconds in spent.items()}
        share = 1 - (spent["relaxed"] + spent["refine"]) / (sum(spent.values()) - spent["report"])
        figures[f"fit {options.fit}: share of neighbors, merging and labeling"] = share, "ratio"
    rows.show_speed(figures, options.threads, options.save)


if __name__ == "__main__":
    main()
