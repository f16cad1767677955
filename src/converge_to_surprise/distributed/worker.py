"""A process that helps the first one: it does what it is told until it is told that all is done."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..cli.use import help_predict
from ..data import datasets
from ..data.image_options import ImageOptions
from ..data.shared_decoding import help_decode
from ..runs import checkpoint
from ..runs.folder import Description
from ..runs.session import fingerprint, finish
from ..search.trainer import Trainer
from . import launch as distributed
from .group import ProcessGroup


def serve() -> int:
    """Follow the orders of the first process; the exit code is 0 if it said that all is done."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process decides what Ctrl-C means
    try:
        with distributed.joined() as world:
            while (order := json.loads(world.tell()))["do"] != "end":
                ORDERS[order.pop("do")](world, **order)
    except distributed.WorkerLost as lost:
        print(f"cts: process {distributed.rank()} stops: {lost}", file=sys.stderr)
        return 1
    except (OSError, ValueError, MemoryError) as error:
        print(f"cts: process {distributed.rank()}: {error}", file=sys.stderr)
        return 2
    return 0


def _train(world: ProcessGroup, description: dict[str, Any]) -> None:
    """Carry a run on from where the first process has it."""
    run = Description.parse(description)
    data_dir = None if run.data_dir is None else Path(run.data_dir)
    images = datasets.load(run.source, data_dir, ImageOptions(labels=run.labels), shape=run.shape).train.images
    if fingerprint(images) != run.fingerprint:
        raise ValueError(f"{run.source} does not hold the same images here as for the first process")
    trainer = Trainer(images, run.config)
    trainer.join(world)
    trainer.restore(checkpoint.unpack(world.tell()))
    for _ in trainer.run():
        pass
    finish(trainer, probabilities=False)


ORDERS: dict[str, Callable[..., None]] = {"train": _train, "predict": help_predict, "decode": help_decode}
