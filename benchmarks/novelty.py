"""Foreign images: how many of them novelty finds, beside what confidence finds; and whether confidence is calibrated.

    pip install '.[benchmarks,photos]'
    python benchmarks/novelty.py [--hands FOLDER [--photos FOLDER [--backbone FILE]]] [--data-dir FOLDER] [--seeds 0]

A model is fitted to a part of its own images; up to 2,000 others are held out, so the run never saw them. Cases:

- digits: 1,400 of scikit-learn's digits, 397 held out; foreign are letters (drawn with the fonts of this machine, and
  skipped if it has none), uniform noise and single bright pixels.
- articles: 1,400 images of Fashion-MNIST, single objects on a plain background; foreign are the pictures of --hands
  (photographs of hands), noise and single pixels.
- photographs: pictures of the folder --photos (the results are of CIFAR-10, all ten classes); the same foreign images.
- photographs, backbone: the same on the features of a pre-trained backbone.

``auroc``: the chance that a foreign image is more novel (less confident) than an own one. ``found``: the share of
foreign images refused if 5 % of the own held-out images are. ``own_refused``: the share of own held-out images above
a novelty of 0.95, which should be 5 %. ``ece``: the mean difference between the confidence of held-out images and how
often their augmented views get the same cluster, in ten bins. Each run appends a row per kind of foreign images to
benchmarks/results/novelty.csv; --diagram draws the reliability diagram of all cases.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import rows
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from converge_to_surprise.core import rng
from converge_to_surprise.data import datasets
from converge_to_surprise.data.formats import READ
from converge_to_surprise.model.cluster_model import Model, Prediction
from converge_to_surprise.model.encoder import BackboneEncoder, all_features
from converge_to_surprise.model.inference import map_augmented_views
from converge_to_surprise.runs.load import load_model

FITTED, HELD_OUT = 1400, 2000
"""Images of the fit and, where there are so many, others: with a few hundred the ECE is mostly chance."""
DRAWS = 10
"""Augmented pairs of views of each held-out image."""
BINS = 10
SCRATCH = ("--schedule", "search=relaxed:40", "merge=merge:1", "refine=refine:10")
SHORT = ("--schedule", "search=relaxed:20", "merge=merge:1", "refine=refine:5")
LETTERS = "ABCDEFGHJKLMNPQRTUVWXYZabdefghkmnprtwy"
"""Without those that look like digits."""
FONTS = ("/usr/share/fonts", "/Library/Fonts", "C:/Windows/Fonts")


class Case(NamedTuple):
    """A model, images of its kind that it never saw, and images of other kinds."""

    title: str
    model: Model
    held_out: Tensor
    foreign: dict[str, Tensor]
    seconds: float
    """Of the fit."""


def digits(folder: Path, seed: int) -> Case:
    from sklearn.datasets import load_digits

    images = np.round(load_digits().images * 255 / 16).astype(np.uint8)
    images = images[np.random.default_rng(seed).permutation(len(images))]
    np.save(folder / "digits.npy", images[:FITTED])
    model, seconds = fit(folder / "digits.npy", folder / "run", seed, *SCRATCH)
    foreign = {"noise": noise(model.shape), "single pixels": single_pixels(model.shape)}
    if (letters := draw_letters()) is not None:
        foreign = {"letters": letters, **foreign}
    return Case("digits", model, torch.from_numpy(images[FITTED:])[:, None], foreign, seconds)


def articles(folder: Path, options: argparse.Namespace, seed: int) -> Case:
    """Single objects on a plain background, as photographs of fruit are: Fashion-MNIST."""
    images = datasets.load("fashion-mnist", options.data_dir).train.images
    images = images[torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))[: FITTED + HELD_OUT]]
    np.save(folder / "articles.npy", images[:FITTED, 0].numpy())
    model, seconds = fit(folder / "articles.npy", folder / "run", seed, *SHORT)
    return Case("articles", model, images[FITTED:], _with_hands(options.hands, model, seed), seconds)


def _with_hands(folder: Path, model: Model, seed: int) -> dict[str, Tensor]:
    """Some pictures of a folder, noise and single pixels."""
    hands = datasets.load(str(folder), shape=model.shape).train.images
    hands = hands[torch.randperm(len(hands), generator=torch.Generator().manual_seed(seed))[:400]]
    return {"hands": hands, "noise": noise(model.shape), "single pixels": single_pixels(model.shape)}


def photographs(folder: Path, options: argparse.Namespace, seed: int, backbone: Path | None) -> Case:
    paths = sorted(path for path in options.photos.rglob("*") if path.suffix.lower() in READ)
    random.Random(seed).shuffle(paths)
    for number, path in enumerate(paths[: FITTED + HELD_OUT]):
        place = folder / ("fitted" if number < FITTED else "held out")
        place.mkdir(exist_ok=True)
        (place / f"{number:05d}{path.suffix}").symlink_to(path.resolve())
    flags = SCRATCH if backbone is None else ("--backbone", backbone, "--backbone-size", 64, "--copies", 3)
    model, seconds = fit(folder / "fitted", folder / "run", seed, *flags)
    held_out = datasets.load(str(folder / "held out"), shape=model.shape).train.images
    title = "photographs" if backbone is None else "photographs, backbone"
    return Case(title, model, held_out, _with_hands(options.hands, model, seed), seconds)


def fit(source: Path, run: Path, seed: int, *flags: object) -> tuple[Model, float]:
    began = time.perf_counter()
    rows.cts("fit", source, "--out", run, "--seed", seed, "--n-init", 1, "--threads", 1, "--no-report", *flags)
    return load_model(run), time.perf_counter() - began


def noise(shape: tuple[int, int, int], count: int = 400) -> Tensor:
    return torch.randint(0, 256, (count, *shape), generator=torch.Generator().manual_seed(1)).to(torch.uint8)


def single_pixels(shape: tuple[int, int, int], count: int = 400) -> Tensor:
    images = torch.zeros(count, *shape, dtype=torch.uint8)
    place = torch.randint(0, shape[1] * shape[2], (count,), generator=torch.Generator().manual_seed(2))
    images.flatten(2)[torch.arange(count), :, place] = 255
    return images


def draw_letters(count: int = 1000, side: int = 8) -> Tensor | None:
    """Letters of many fonts that fill the image as the digits do; None without fonts."""
    from PIL import Image, ImageDraw, ImageFont

    fonts = sorted(str(path) for place in FONTS for path in Path(place).rglob("*.ttf") if "Emoji" not in path.name)
    if not fonts:
        print("letters are skipped: there are no fonts; install some, for example fonts-dejavu")
        return None
    dice = random.Random(0)
    found: list[npt.NDArray[np.uint8]] = []
    while len(found) < count:
        paper = Image.new("L", (64, 64))
        font = ImageFont.truetype(dice.choice(fonts), 52)
        ImageDraw.Draw(paper).text((32, 32), dice.choice(LETTERS), font=font, fill=255, anchor="mm")
        if (box := paper.getbbox()) is None:
            continue  # a font without this letter
        glyph, height = paper.crop(box), 8 * side
        width = min(height, max(8, round(0.85 * glyph.width * height / glyph.height)))
        large = Image.new("L", (height, height))
        large.paste(glyph.resize((width, height), Image.Resampling.BILINEAR), ((height - width) // 2, 0))
        found.append(np.asarray(large.resize((side, side), Image.Resampling.BOX)))
    return torch.from_numpy(np.stack(found))[:, None]


def predict(model: Model, images: Tensor) -> Prediction:
    return Prediction(*(torch.cat(column) for column in zip(*model.predict(images), strict=True)))


def agreement(model: Model, images: Tensor, found: Prediction) -> Tensor:
    """How often augmented views of each image get its cluster. (n,)"""
    network = model.active.network
    generator = rng.torch_generator(0, "agreement")
    hits = [
        (model.numbers[network.outputs(side).argmax(-1)] == found.cluster).float()
        for views in _augmented(model, images, generator)
        for side in views
    ]
    return torch.stack(hits).mean(0)


def _augmented(model: Model, images: Tensor, generator: torch.Generator) -> Iterator[tuple[Tensor, ...]]:
    """Features of augmented views i and j of the images, DRAWS times."""
    network = model.active.network
    if model.encoder is None:
        for _ in range(DRAWS):
            yield map_augmented_views(network, images, model.config, generator, network.features).chunk(2)
        return
    encoder = model.encoder
    assert isinstance(encoder, BackboneEncoder)
    for _ in range(DRAWS // encoder.recipe.copies + 1):
        parts = [all_features(encoder.backbone, part, encoder.recipe, generator) for part in torch.split(images, 32)]
        both = network.features(encoder.projection(torch.cat(parts)[:, :, 1:]).float())
        for copy in range(encoder.recipe.copies):
            yield both[:, 0, copy], both[:, 1, copy]


def reliability(sure: Tensor, hits: Tensor) -> list[tuple[int, float, float]]:
    """Images, mean confidence and agreement of each bin of equal width that holds any."""
    place = (sure * BINS).long().clamp(max=BINS - 1)
    inside = [place == number for number in range(BINS)]
    return [(int(m.sum()), float(sure[m].mean()), float(hits[m].mean())) for m in inside if m.any()]


def separation(own: Tensor, foreign: Tensor) -> tuple[float, float]:
    """AUROC, and the share of foreign images above the 95th percentile of own ones."""
    truth = [0] * len(own) + [1] * len(foreign)
    return float(roc_auc_score(truth, torch.cat([own, foreign]))), float((foreign > own.quantile(0.95)).float().mean())


def _above(found: Prediction) -> float:
    return float((found.novelty > 0.95).float().mean())


@torch.inference_mode()
def measure(case: Case, seed: int) -> tuple[list[dict[str, object]], list[tuple[int, float, float]]]:
    """A row for each kind of foreign images, and the bins of the reliability diagram."""
    own = predict(case.model, case.held_out)
    hits = agreement(case.model, case.held_out, own)
    bins = reliability(own.confidence, hits)
    ece = sum(count * abs(sure - hit) for count, sure, hit in bins) / len(case.held_out)
    found: list[dict[str, object]] = []
    for kind, images in case.foreign.items():
        other = predict(case.model, images)
        auroc, share = separation(own.novelty, other.novelty)
        auroc_sure, share_sure = separation(-own.confidence, -other.confidence)
        found.append(
            {
                "case": case.title, "foreign": kind, "seed": seed, "n_clusters": case.model.n_clusters,
                "held_out": len(case.held_out), "images": len(images), "auroc": auroc, "found": share,
                "auroc_confidence": auroc_sure, "found_confidence": share_sure,
                "mean_confidence": float(other.confidence.mean()), "above_095": _above(other),
                "own_refused": _above(own), "ece": ece,
                "reliability": " ".join(f"{count}:{sure:.3f}:{hit:.3f}" for count, sure, hit in bins),
                "seconds": round(case.seconds, 1),
            }
        )  # fmt: skip
        by_novelty, by_confidence = f"{auroc:.4f} ({share:.1%})", f"{auroc_sure:.4f} ({share_sure:.1%})"
        text = f"{case.title:<22} {kind:<14} novelty {by_novelty}, confidence {by_confidence}"
        print(f"{text}; own above 0.95: {_above(own):.3f}; ECE {ece:.4f}", flush=True)
    return found, bins


def draw_diagram(file: Path) -> None:
    """The reliability diagram of the last run of every case."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(4.5, 4.2))
    axes.plot([0, 1], [0, 1], color="#999999", linewidth=1, linestyle="--")
    latest = {row["case"]: row for row in rows.read_rows(rows.RESULTS / "novelty.csv")}
    for (title, row), marker in zip(latest.items(), "osD^v", strict=False):
        bins = [tuple(map(float, one.split(":"))) for one in row["reliability"].split()]
        known = [(sure, hit) for count, sure, hit in bins if count >= 5]
        axes.plot(*zip(*known, strict=True), marker=marker, markersize=5, label=f"{title}, ECE {float(row['ece']):.3f}")
    axes.set(xlabel="confidence", ylabel="share of augmented views with the same cluster", xlim=(0, 1), ylim=(0, 1))
    axes.legend(loc="upper left", fontsize=8, frameon=False)
    figure.savefig(file, bbox_inches="tight", metadata={"Date": None})


def main() -> None:
    parser = rows.parser(__doc__, "novelty.csv", seeds=[0])
    parser.add_argument("--photos", type=Path, help="folder of photographs to fit")
    parser.add_argument("--hands", type=Path, help="folder of photographs of another kind")
    parser.add_argument("--data-dir", type=Path, help="folder with a local copy of Fashion-MNIST")
    parser.add_argument("--backbone", type=Path, help="ONNX file of a pre-trained network")
    parser.add_argument("--only", default="", help="only cases whose name holds this")
    parser.add_argument("--diagram", type=Path, help="SVG file to draw, from the figures there are")
    options = parser.parse_args()
    makers: dict[str, Callable[[Path, int], Case]] = {"digits": digits}
    if options.hands is None:
        print("articles are skipped: give --hands")
    else:
        makers["articles"] = lambda folder, seed: articles(folder, options, seed)
    if options.photos is None or options.hands is None:
        print("photographs are skipped: give --photos and --hands")
    else:
        makers["photographs"] = lambda folder, seed: photographs(folder, options, seed, None)
        if options.backbone is not None:
            makers["photographs, backbone"] = lambda folder, seed: photographs(folder, options, seed, options.backbone)
    for title, make in makers.items():
        for seed in options.seeds:
            if options.only in title:
                with tempfile.TemporaryDirectory() as name:
                    rows.append_rows(options.save, measure(make(Path(name), seed), seed)[0])
    if options.diagram is not None:
        draw_diagram(options.diagram)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
