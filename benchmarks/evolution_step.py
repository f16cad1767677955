"""How fast is one update of the evolution strategy, as a share of the bare network's forward pass?

    python benchmarks/evolution_step.py [--members 32] [--images 3000] [--threads 2] [--no-vmap] [--save FILE]

Prints views per second of

- bare:   the network's own forward pass over the same views, at its best chunk size and best way of using the threads;
- update: a whole update as the trainer does it: chessboard split, augmentation, noise, all members on both views with
          batch statistics over the whole batch, scoring, ranking, the new θ, and the refresh of the running statistics.
          Only the members' views are counted;
- vmap:   the same update by ``torch.func.vmap`` over stacked weights, 16 members at a time as in the paper;

and the peak memory of the process up to the end of the updates. Bare and update alternate, so that both see the same
machine; each figure is the median of the rounds. ``--save benchmarks/results/speed.csv`` appends them to that file.
"""

from __future__ import annotations

import operator
import resource
import statistics
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise

import numpy as np
import rows
import torch
from torch import Tensor
from torch.func import functional_call

from converge_to_surprise.config import Augmentation, Config, Evolution, Stage
from converge_to_surprise.core import surprise
from converge_to_surprise.model.network import ResNet9, channels_last, flatten, unflatten
from converge_to_surprise.search import evolution
from converge_to_surprise.search.threads import available_threads
from converge_to_surprise.search.trainer import Trainer

CHUNKS = (50, 100, 150, 250, 500)
SIDE = 28


def bare_ways(network: ResNet9, views: Tensor, threads: int) -> dict[str, Callable[[], None]]:
    """The forward pass in chunks, in training and in evaluation mode, by threaded operators or by a pool of threads."""

    @torch.inference_mode()
    def forward(start: int, stop: int, chunk: int) -> None:
        for first in range(start, stop, chunk):
            network.logits(views[first : min(first + chunk, stop)])

    def by_operators(chunk: int) -> None:
        torch.set_num_threads(threads)
        forward(0, len(views), chunk)

    def by_pool(chunk: int) -> None:
        cuts = np.linspace(0, len(views), threads + 1).astype(int).tolist()
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            list(pool.map(lambda part: forward(part[0], part[1], chunk), pairwise(cuts)))

    def in_mode(way: Callable[[int], None], chunk: int, training: bool) -> None:
        network.train(training)
        way(chunk)

    return {
        f"chunk {chunk}, {name}, {'training' if training else 'evaluation'} mode": partial(
            in_mode, way, chunk, training
        )
        for chunk in CHUNKS
        for name, way in (("operators", by_operators), ("pool", by_pool))
        for training in (True, False)
    }


def vmap_speed(first: Tensor, second: Tensor, members: int) -> float:
    """Views per second of the same update with ``vmap`` over the stacked weights of ``members`` members at a time."""
    network = ResNet9(1, 64)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.track_running_stats = False
            module.running_mean = module.running_var = module.num_batches_tracked = None
    theta = flatten(network)
    generation = evolution.Generation(0, 0, 1.0, Evolution(population=members))
    buffers = dict(network.named_buffers())

    def labels(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(network, (parameters, buffers), (x,)).argmax(-1)  # type: ignore[no-any-return]

    @torch.inference_mode()
    def update() -> None:
        asked = [unflatten(member, network) for member in evolution.ask(theta, generation, range(members))]
        stacked = {name: torch.stack([member[name] for member in asked]) for name in asked[0]}
        pair = [torch.vmap(labels, in_dims=(0, None))(stacked, view) for view in (first, second)]
        evolution.tell(theta, surprise.surprise(surprise.count(pair[0], pair[1], 64)), generation)

    return 2 * len(first) * members / rows.taking_turns({"update": update}, 1)["update"][0]


def main() -> None:
    parser = rows.parser(__doc__, members=32, images=3000, threads=available_threads(), rounds=3, vmap_members=16)
    parser.add_argument("--no-vmap", action="store_true")
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.integers(0, 256, (options.images, 1, SIDE, SIDE), dtype=np.uint8))
    config = Config(
        threads=options.threads,
        schedule=(Stage("explore", "evolution", options.rounds + 1),),
        evolution=Evolution(population=options.members, batch_size=options.images, ramp_epochs=1),
        augmentation=Augmentation(rotation=20, crop=4, brightness=0.3, contrast=0.3),
    )
    trainer = Trainer(images, config)
    updates = trainer.run()
    views = channels_last(torch.rand(options.images, 1, SIDE, SIDE))
    network = ResNet9(1, 64)
    next(updates)  # warm-up
    ways = bare_ways(network, views, options.threads)
    tries = rows.taking_turns(ways, 5)
    best = min(tries, key=lambda name: statistics.median(tries[name]))
    # Bare passes of half a second and more on both sides of every update: machines change their speed.
    around = {f"bare {number}": ways[best] for number in range(5)}
    bares, speeds = list[float](), list[float]()
    for number in range(options.rounds):
        works = {**around, "update": lambda: next(updates), **{f"{name} after": ways[best] for name in around}}
        spent = {name: seconds for name, (seconds,) in rows.taking_turns(works, 1).items()}
        speeds.append(2 * options.images * options.members / spent.pop("update"))
        bares.append(len(views) / statistics.median(spent.values()))
        print(f"round {number}: bare {bares[-1]:,.0f} ({best}), update {speeds[-1]:,.0f} views/s", flush=True)
    bare, update = statistics.median(bares), statistics.median(speeds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)
    torch.set_num_threads(options.threads)
    vmap = None if options.no_vmap else vmap_speed(views.contiguous(), views.contiguous(), options.vmap_members)
    figures = {
        "bare forward pass": (bare, "views/s"),
        "update": (update, "views/s"),
        "update / bare": (statistics.median(map(operator.truediv, speeds, bares)), "ratio"),
        "one update": (2 * options.images * options.members / update, "s"),
        "peak memory": (peak, "MB"),
        **({"update by vmap": (vmap, "views/s")} if vmap else {}),
    }
    rows.show_speed(figures, options.threads, options.save)


if __name__ == "__main__":
    main()
