"""One initialization in a process of its own (see ``distributed/side_by_side.py``).

The folder holds the images and the configurations of all initializations. What is left there is JSON and safetensors.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..config import Config
from ..config.files import overlay, to_dict
from ..config.storage import write_atomically, write_json
from ..distributed.side_by_side import SideBySide, end_with_parent
from .record import Record
from .snapshot import Snapshot
from .trainer import Trainer

IMAGES, CONFIGS = "images.npy", "configs.json"


def start(folder: Path, images: Tensor, configs: Sequence[Config], tasks: range, processes: int) -> SideBySide:
    """Prepare a folder for the initializations with these configurations, of which other processes do ``tasks``."""
    np.save(folder / IMAGES, images.numpy(), allow_pickle=False)
    write_json(folder / CONFIGS, [to_dict(config) for config in configs])
    return SideBySide(__spec__.name, folder, tasks, processes)


def read(content: bytes) -> tuple[list[Record], Snapshot]:
    """The records and the last state of an initialization from the result of its process."""
    snapshot = Snapshot.from_bytes(content)
    return [Record(**record) for record in snapshot.data.pop("records")], snapshot


def main(folder: Path, number: int) -> None:
    end_with_parent()
    config = overlay(Config(), json.loads((folder / CONFIGS).read_text(encoding="utf-8"))[number])
    images = torch.from_numpy(np.load(folder / IMAGES, mmap_mode="c", allow_pickle=False))
    trainer = Trainer(images, config)
    records = [asdict(record) for record in trainer.run()]
    tensors, data = trainer.snapshot()
    write_atomically(folder / f"{number}.result", Snapshot(tensors, data | {"records": records}).to_bytes())


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
