"""How fast is one update of the evolution strategy, as a share of the bare network's forward pass?

    python benchmarks/evolution_step.py [--members 32] [--images 3000] [--threads 2] [--precision bfloat16] [--no-vmap]

Prints, for float32 and for the other precision (bfloat16 where the CPU computes in it), views per second of

- bare:   the network's own forward pass over the same views, at its best chunk size and best way of using the threads;
- update: a whole update as the trainer does it: chessboard split, augmentation, noise, all members on both views with
          batch statistics over the whole batch, scoring, ranking, the new θ, and the refresh of the running statistics.
          Only the members' views are counted;
- vmap:   the same update by ``torch.func.vmap`` over stacked weights, 16 members at a time as in the paper;

and the peak memory of the process up to the end of the updates. All of them alternate, so that they see the same
machine; each figure is the median of the rounds. ``--save benchmarks/results/speed.csv`` appends them to that file.
"""

from __future__ import annotations

import argparse
import operator
import resource
import statistics
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import get_args

import numpy as np
import rows
import torch
from torch import Tensor
from torch.func import functional_call

from converge_to_surprise.config import Augmentation, Config, Evolution, Precision, Stage
from converge_to_surprise.core import surprise
from converge_to_surprise.model.network import ResNet9, channels_last, flatten, unflatten
from converge_to_surprise.model.precision import cpu_has_bfloat16, lowered
from converge_to_surprise.search import evolution
from converge_to_surprise.search.threads import available_threads
from converge_to_surprise.search.trainer import Trainer

CHUNKS = (50, 100, 150, 250, 500)
SIDE = 28


def bare_ways(network: ResNet9, views: Tensor, threads: int, precision: Precision) -> dict[str, Callable[[], None]]:
    """The forward pass in chunks, in training and in evaluation mode, by threaded operators or by a pool of threads."""

    @torch.inference_mode()
    def forward(start: int, stop: int, chunk: int) -> None:
        with lowered(precision, views.device):
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

    pools = {"operators": by_operators, **({"pool": by_pool} if threads > 1 else {})}
    return {
        f"chunk {chunk}, {name}, {'training' if training else 'evaluation'} mode": partial(
            in_mode, way, chunk, training
        )
        for chunk in CHUNKS
        for name, way in pools.items()
        for training in (True, False)
    }


class Contest:
    """The bare forward pass and the update in one precision."""

    def __init__(self, precision: Precision, options: argparse.Namespace, images: Tensor) -> None:
        self.precision, self.images, self.members = precision, len(images), options.members
        config = Config(
            threads=options.threads,
            precision=precision,
            schedule=(Stage("explore", "evolution", options.rounds + 1),),
            evolution=Evolution(population=options.members, batch_size=len(images), ramp_epochs=1),
            augmentation=Augmentation(rotation=20, crop=4, brightness=0.3, contrast=0.3),
        )
        self.updates = Trainer(images, config).run()
        next(self.updates)  # warm-up
        views = channels_last(torch.rand(len(images), 1, SIDE, SIDE))
        ways = bare_ways(ResNet9(1, 64), views, options.threads, precision)
        tries = rows.taking_turns(ways, options.tries)
        self.best = min(tries, key=lambda name: statistics.median(tries[name]))
        self.bare = ways[self.best]
        self.bares, self.speeds = list[float](), list[float]()

    def round(self) -> None:
        """One update between bare passes of half a second and more: machines change their speed."""
        around = {f"bare {number}": self.bare for number in range(5)}
        works = {**around, "update": lambda: next(self.updates), **{f"{name} after": self.bare for name in around}}
        spent = {name: seconds for name, (seconds,) in rows.taking_turns(works, 1).items()}
        self.speeds.append(2 * self.images * self.members / spent.pop("update"))
        self.bares.append(self.images / statistics.median(spent.values()))
        print(
            f"{self.precision}: bare {self.bares[-1]:,.0f} ({self.best}), update {self.speeds[-1]:,.0f} views/s",
            flush=True,
        )

    def figures(self) -> dict[str, tuple[float, str]]:
        bare, update = statistics.median(self.bares), statistics.median(self.speeds)
        suffix = "" if self.precision == "float32" else f", {self.precision}"
        return {
            f"bare forward pass{suffix}": (bare, "views/s"),
            f"update{suffix}": (update, "views/s"),
            f"update / bare{suffix}": (statistics.median(map(operator.truediv, self.speeds, self.bares)), "ratio"),
            f"one update{suffix}": (2 * self.images * self.members / update, "s"),
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
    parser = rows.parser(
        __doc__, members=32, images=3000, threads=available_threads(), rounds=3, tries=5, vmap_members=16
    )
    parser.add_argument("--precision", choices=get_args(Precision), help="compared with float32")
    parser.add_argument("--no-vmap", action="store_true")
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.integers(0, 256, (options.images, 1, SIDE, SIDE), dtype=np.uint8))
    other: Precision = options.precision or ("bfloat16" if cpu_has_bfloat16() else "float32")
    contests = [Contest(precision, options, images) for precision in dict.fromkeys(["float32", other])]
    for _ in range(options.rounds):
        for contest in contests:
            contest.round()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)
    figures = {name: figure for contest in contests for name, figure in contest.figures().items()}
    if len(contests) == 2:
        gain = statistics.median(map(operator.truediv, contests[1].speeds, contests[0].speeds))
        figures[f"update, {other} / float32"] = (gain, "ratio")
    figures["peak memory"] = (peak, "MB")
    if not options.no_vmap:
        torch.set_num_threads(options.threads)
        views = torch.rand(options.images, 1, SIDE, SIDE)
        figures["update by vmap"] = (vmap_speed(views, views.clone(), options.vmap_members), "views/s")
    rows.show_speed(figures, options.threads, options.save)


if __name__ == "__main__":
    main()
