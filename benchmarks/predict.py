"""How fast are predictions, and does their memory stay flat?

Images per second of the bare network (both views, forward pass only), of predictions from an array and of predictions
from PNG files, in one run; then the memory of `cts predict` itself for 10,000 and for 200,000 images.

    python benchmarks/predict.py [--save benchmarks/results/speed.csv]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import rows
import torch
from PIL import Image

from converge_to_surprise.config import presets
from converge_to_surprise.core.views import make_views, to_float
from converge_to_surprise.data.source import Source
from converge_to_surprise.model import model_file as modelfile
from converge_to_surprise.model.backbone import random_network
from converge_to_surprise.model.cluster_model import UNCALIBRATED, CalibratedNetwork, Model
from converge_to_surprise.model.inference import CHUNK
from converge_to_surprise.model.network import channels_last

SIDE = 28
IMAGES = 3_000
ROUNDS = 6


def a_model() -> Model:
    config = presets.resolve("fast", None, "mnist", IMAGES, (1, SIDE, SIDE))
    network = random_network(config, 1, 1).eval()
    return Model(config, (1, SIDE, SIDE), CalibratedNetwork(network, UNCALIBRATED, (1,) * network.n_outputs))


def speeds(model: Model, folder: Path) -> dict[str, float]:
    """Images per second of the fastest round: what the machine can do when nothing disturbs it."""
    images = torch.randint(256, (IMAGES, 1, SIDE, SIDE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    network = model.active.network
    views = [channels_last(view) for view in make_views(to_float(images[:CHUNK]), model.config.views)]
    for number, image in enumerate(images):
        Image.fromarray(image[0].numpy()).save(folder / f"{number:05d}.png", compress_level=1)
    source = Source.open(str(folder), model.shape, "train", None)

    @torch.inference_mode()
    def bare() -> None:
        for _ in range(IMAGES // CHUNK):
            for view in views:
                network(view)

    def arrays() -> None:
        for _ in model.predict(images):
            pass

    def files() -> None:
        for chunk in source.chunks(range(len(source))):
            for _ in model.predict(chunk.images):
                pass

    found = rows.taking_turns({"bare": bare, "arrays": arrays, "files": files}, ROUNDS, warm=True)
    return {name: IMAGES / min(seconds) for name, seconds in found.items()}


MEASURED = """
import sys, rows
from converge_to_surprise import cli
watch = rows.MemoryWatch()
assert cli.main(sys.argv[1:]) == 0
print(max(watch.megabytes.values()), file=sys.stderr)
"""


def megabytes(model: Path, count: int, folder: Path) -> float:
    """Peak memory of its own (not the file's pages that the system keeps) of `cts predict` on so many images."""
    array = folder / f"{count}.npy"
    pixels = np.lib.format.open_memmap(array, mode="w+", dtype=np.uint8, shape=(count, SIDE, SIDE))
    generator = np.random.default_rng(0)
    for start in range(0, count, 10_000):
        pixels[start : start + 10_000] = generator.integers(0, 256, (min(10_000, count - start), SIDE, SIDE))
    pixels.flush()
    words = ["predict", str(model), str(array), "--out", str(folder / f"{count}.csv")]
    ended = subprocess.run(
        [sys.executable, "-c", MEASURED, *words], check=True, capture_output=True, text=True, cwd=rows.RESULTS.parent
    )
    return float(ended.stderr.split()[-1])


def main() -> None:
    parser = rows.parser(__doc__, threads=2)
    parser.add_argument("--sizes", type=int, nargs="*", default=[10_000, 200_000])
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model = a_model()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "png").mkdir()
        found = speeds(model, folder / "png")
        modelfile.save(folder / "model.safetensors", model)
        model_file = folder / "model.safetensors"
        memory = {
            f"peak memory for {size:,} images": (megabytes(model_file, size, folder), "MB") for size in arguments.sizes
        }
    figures = {
        "bare forward pass on both views": (found["bare"], "images/s"),
        "from an array": (found["arrays"], "images/s"),
        "from PNG files": (found["files"], "images/s"),
        "array / bare": (found["arrays"] / found["bare"], "ratio"),
        "files / bare": (found["files"] / found["bare"], "ratio"),
        **memory,
    }
    rows.show_speed(figures, arguments.threads, arguments.save)


if __name__ == "__main__":
    main()
