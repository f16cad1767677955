"""How do time and memory of a bank of features grow with the number of images?

    pip install '.[photos]'
    python benchmarks/bank.py [--sizes 10000 100000 1000000] [--side 8] [--copies 1] [--threads 1]

For each size an .npy file of small color images is written as in benchmarks/bigdata.py; a process of its own then makes
their bank with a backbone of one convolution, an ONNX file made on the spot: what is measured is the bank, not the
backbone. Memory is the process's own (RssAnon). A row for each size is appended to benchmarks/results/bigdata.csv, with
the bytes of the bank.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import bigdata
import numpy as np
import rows
import torch

FEATURES, PATCH = 8, 4


def write_backbone(path: Path) -> None:
    """An ONNX file from images (n, 3, h, w) to the means of one convolution's outputs (n, 8)."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    kernel = np.random.default_rng(0).normal(0, 0.2, (FEATURES, 3, PATCH, PATCH)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["images", "kernel"], ["map"], strides=[PATCH, PATCH]),
            helper.make_node("GlobalAveragePool", ["map"], ["features"]),
        ],
        "one convolution",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, "h", "w"])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(kernel, "kernel")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)


def measure(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The row of one size, measured in this process."""
    from converge_to_surprise.config import Views
    from converge_to_surprise.config.presets import COMPONENTS, photo_augmentation
    from converge_to_surprise.data import datasets
    from converge_to_surprise.model.feature_bank import BankJob, stored_features
    from converge_to_surprise.model.feature_recipe import FeatureRecipe
    from converge_to_surprise.model.pretrained import PreprocessFlags, open_backbone

    torch.set_num_threads(options.threads)
    write_backbone(path.with_suffix(".onnx"))
    backbone = open_backbone(str(path.with_suffix(".onnx")), PreprocessFlags(size=options.side))
    augmentation = photo_augmentation(options.side, "scene")
    recipe = FeatureRecipe(backbone.identity, Views(fill_masked=True), augmentation, options.copies, COMPONENTS)
    images = datasets.load(str(path)).train.images
    folder = path.parent / "bank"
    meter = bigdata.Meter()
    with meter.measured("bank"):
        items, _ = stored_features(BankJob(images, recipe, folder, options.threads, backbone))
    assert len(items) == len(images)
    return {
        "images": len(images),
        "side": options.side,
        "channels": 3,
        "threads": options.threads,
        "stage": "feature bank",
        "cpu_seconds": meter.seconds["bank"],
        "wall_seconds": meter.wall["bank"],
        "megabytes": meter.megabytes["bank"],
        "bank_bytes": sum(file.stat().st_size for file in folder.iterdir()),
    }


def main() -> None:
    parser = rows.parser(__doc__, "bigdata.csv", side=8, copies=1, threads=1)
    parser.add_argument("--sizes", type=int, nargs="+", default=bigdata.SIZES)
    parser.add_argument("--work", type=Path, help="folder for the images and the bank")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(measure(options.measure, options)))
        return
    for row in bigdata.each_size(__file__, options, channels=3):
        rows.append_rows(options.save, [row])
        print(row, flush=True)


if __name__ == "__main__":
    main()
