"""The image sets of the zoo, on which the number of clusters is judged: makes them as files.

    python benchmarks/zoo_sets.py --out FOLDER [NAME ...] [--data-dir FOLDER] [--pictures-dir FOLDER] [--seed 0]

Each set is written as FOLDER/NAME.npz (``images`` uint8 (N, H, W) or (N, H, W, 3), ``labels``), in random order, or for
photographs as FOLDER/NAME/CLASS/ with links to the pictures. ``--data-dir`` (or CTS_DATA) has mnist.npz,
fashion_mnist.npz and usps.npz as for `cts fit`; ``--pictures-dir`` (or CTS_PICTURES) has the folders sign-digits,
mednist and cifar10 with a folder per class; the fonts of the signs are Debian's (benchmarks/zoo_glyphs.py). The same
seed makes the same files. ``--list`` prints the sets. ``--sheet`` writes NAME.png beside each set as well: some of its
images, a row per class.

Half of the first 49 sets is for ``design``: figures on it may shape rules and settings. The other half was to be ``held
out``, until it was looked at too. So there are ``new`` sets, made when the rules were fixed: other scripts, other
classes of the same sources, another kind of noise. What shaped the rules of version 0.1 is in the half for design.
"""

from __future__ import annotations

import argparse
import os
import shutil
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import zoo_glyphs as glyphs
from PIL import Image
from scipy import ndimage

Pixels = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
Half = Literal["design", "held out", "new"]
FASHION = ("top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
"""The classes of Fashion-MNIST, by short names."""


class Arrays(NamedTuple):
    """A set as arrays: (N, H, W) or (N, H, W, 3), and classes (N,)."""

    images: Pixels
    labels: Labels


class Photographs(NamedTuple):
    """A set as files, by class."""

    files: dict[str, list[Path]]


@dataclass(frozen=True)
class Sources:
    """Where images come from, and the random numbers of one set."""

    data_dir: Path | None
    pictures_dir: Path | None
    fonts_dir: Path
    rng: np.random.Generator

    def named(self, name: str) -> Arrays:
        """The training part of a data set by its name."""
        from converge_to_surprise.data import datasets

        train = datasets.load(name, self.data_dir).train
        assert train.labels is not None
        return Arrays(train.images.numpy()[:, 0], train.labels)

    def pictures(self, name: str) -> dict[str, list[Path]]:
        """The files of a folder of pictures, by class."""
        if self.pictures_dir is None or not (self.pictures_dir / name).is_dir():
            raise SystemExit(f"no folder {name} in --pictures-dir ({self.pictures_dir})")
        folders = sorted(path for path in (self.pictures_dir / name).iterdir() if path.is_dir())
        return {path.name: sorted(file for file in path.iterdir() if file.is_file()) for path in folders}


Maker = Callable[[Sources], Arrays | Photographs]


class ZooSet(NamedTuple):
    """One set: how many classes, what kind of difficulty it stands for, which half, how it is made."""

    classes: int
    """0 where nothing is to be found, 1 where all images show the same kind of thing."""
    kind: str
    half: Half
    make: Maker


def some(source: Arrays, counts: dict[int, int], rng: np.random.Generator) -> Arrays:
    """``counts[c]`` random images of each class c, classes numbered in the order of ``counts``."""
    picked = [rng.permutation(np.flatnonzero(source.labels == kind))[:count] for kind, count in counts.items()]
    labels = np.repeat(np.arange(len(counts)), [len(part) for part in picked])
    return Arrays(source.images[np.concatenate(picked)], labels)


def subset(name: str, counts: dict[int, int]) -> Maker:
    """Some images of some classes of a named data set."""
    return lambda sources: some(sources.named(name), counts, sources.rng)


def whole(name: str) -> Maker:
    return lambda sources: sources.named(name)


def inverted(make: Maker) -> Maker:
    """The same with black and white exchanged."""

    def made(sources: Sources) -> Arrays:
        found = make(sources)
        assert isinstance(found, Arrays)
        return found._replace(images=255 - found.images)

    return made


def together(*makes: Maker) -> Maker:
    """Several sets as one, each with classes of its own."""

    def made(sources: Sources) -> Arrays:
        images, labels, first = [], [], 0
        for make in makes:
            found = make(sources)
            assert isinstance(found, Arrays)
            images.append(found.images)
            labels.append(found.labels + first)
            first += int(found.labels.max()) + 1
        return Arrays(np.concatenate(images), np.concatenate(labels))

    return made


def upright_and_lying(make: Maker, same: Sequence[int]) -> Maker:
    """Every image and the same one turned by 90 degrees: two classes for one, but for those in ``same``."""

    def made(sources: Sources) -> Arrays:
        found = make(sources)
        assert isinstance(found, Arrays)
        images, labels = found
        lying = np.where(np.isin(labels, same), labels, labels + int(labels.max()) + 1)
        both = np.concatenate([labels, lying])
        return Arrays(np.concatenate([images, np.rot90(images, 1, (1, 2))]), np.unique(both, return_inverse=True)[1])

    return made


def copies(make: Maker, times: int) -> Maker:
    """Every image several times, as if scanned anew: moved by less than a pixel, turned by 2 degrees, with noise."""

    def made(sources: Sources) -> Arrays:
        found = make(sources)
        assert isinstance(found, Arrays)
        side, scale = found.images.shape[1], glyphs.OVERSAMPLED
        changed = []
        for image in found.images:
            large = Image.fromarray(image).resize((side * scale, side * scale), Image.Resampling.BICUBIC)
            changed += [glyphs.distorted(large, side, glyphs.TINY, sources.rng) for _ in range(times)]
        images = np.stack(changed).astype(np.float32) / np.float32(255)
        return Arrays(glyphs.noisy(images, sources.rng, glyphs.TINY.noise), np.repeat(found.labels, times))

    return made


def printed(signs: str, counts: int | Sequence[int], black: bool = False) -> Maker:
    """Signs in white on black, or in black on white; ``counts`` images of each."""

    def made(sources: Sources) -> Arrays:
        each = [counts] * len(signs) if isinstance(counts, int) else list(counts)
        ink, labels = glyphs.masks(signs, each, sources.fonts_dir, sources.rng)
        return Arrays(glyphs.noisy(1 - ink if black else ink, sources.rng), labels)

    return made


def tinted(make: Maker) -> Maker:
    """Gray images in two random colors, the lighter one where they are light."""

    def made(sources: Sources) -> Arrays:
        found = make(sources)
        assert isinstance(found, Arrays)
        share = found.images[..., None].astype(np.float32) / 255
        dark = sources.rng.uniform(0, 0.45, (len(share), 1, 1, 3))
        light = sources.rng.uniform(0.6, 1, (len(share), 1, 1, 3))
        return found._replace(images=np.rint(255 * (dark + share * (light - dark))).astype(np.uint8))

    return made


def crops(sources: Sources, name: str, count: int, side: int) -> npt.NDArray[np.float32]:
    """Random square crops of pictures, from 0 to 1. (count, side, side, 3)"""
    files = [file for listed in sources.pictures(name).values() for file in listed]
    found = []
    for number in sources.rng.integers(len(files), size=count):
        with Image.open(files[number]) as picture:
            left, top = (int(sources.rng.integers(extent - side + 1)) for extent in picture.size)
            found.append(np.asarray(picture.convert("RGB").crop((left, top, left + side, top + side))))
    return np.stack(found).astype(np.float32) / np.float32(255)


def on_photographs(signs: str, count: int, pictures: str, gray: bool = False, black: bool = False) -> Maker:
    """Signs of one color on darkened crops of photographs, or of dark color on lightened ones. 32x32 pixels."""

    def made(sources: Sources) -> Arrays:
        rng = sources.rng
        ink, labels = glyphs.masks(signs, [count] * len(signs), sources.fonts_dir, rng, side=32)
        ground = 0.6 * crops(sources, pictures, len(ink), 32)
        color = rng.uniform(0.75, 1, (len(ink), 1, 1, 3))
        if black:
            ground, color = ground + 0.4, 1 - color
        images = ground + ink[..., None] * (color - ground)
        return Arrays(glyphs.noisy((images.mean(-1) if gray else images).astype(np.float32), rng), labels)

    return made


def pictures(name: str, counts: dict[str, int] | None = None) -> Maker:
    """A folder of photographs, or some of its classes."""

    def made(sources: Sources) -> Photographs:
        every = sources.pictures(name)
        if counts is None:
            return Photographs(every)
        picked = {kind: sources.rng.permutation(len(every[kind]))[:count] for kind, count in counts.items()}
        return Photographs({kind: [every[kind][number] for number in numbers] for kind, numbers in picked.items()})

    return made


def gray_arrays(name: str, kind: str) -> Maker:
    """The pictures of one class as arrays: a single folder has no classes to be read from folders."""

    def made(sources: Sources) -> Arrays:
        found = [np.asarray(Image.open(file).convert("L")) for file in sources.pictures(name)[kind]]
        return Arrays(np.stack(found), np.zeros(len(found), dtype=np.int64))

    return made


def nothing(images: Callable[[np.random.Generator], npt.NDArray[np.floating]]) -> Maker:
    """Images of noise."""

    def made(sources: Sources) -> Arrays:
        values = images(sources.rng)
        return Arrays(np.rint(255 * np.clip(values, 0, 1)).astype(np.uint8), np.zeros(len(values), dtype=np.int64))

    return made


def uniform_noise(rng: np.random.Generator) -> npt.NDArray[np.floating]:
    return rng.random((2_000, 28, 28))


def blobs(rng: np.random.Generator) -> npt.NDArray[np.floating]:
    """Smooth spots: noise blurred by 2.5 pixels, stretched to the range of pixels."""
    values = ndimage.gaussian_filter(rng.standard_normal((3_000, 28, 28)), (0, 2.5, 2.5), mode="wrap")
    return np.asarray(0.5 + 0.25 * values / values.std())


def pink_noise(rng: np.random.Generator) -> npt.NDArray[np.floating]:
    """Noise with the spectrum of photographs, 1/f."""
    rows, columns = np.meshgrid(np.fft.fftfreq(32), np.fft.fftfreq(32), indexing="ij")
    spectrum = 1 / np.maximum(np.hypot(rows, columns), 1 / 32)
    values = np.fft.ifft2(np.fft.fft2(rng.standard_normal((3_000, 32, 32))) * spectrum).real
    return np.asarray(0.5 + 0.2 * values / values.std())


def scratches(rng: np.random.Generator) -> npt.NDArray[np.floating]:
    """Eight strokes of random place, length and direction in each image."""
    size = 28
    places = np.stack(np.meshgrid(np.arange(size), np.arange(size), indexing="ij"), -1)
    images = np.zeros((3_000, size, size))
    for image in images:
        for _ in range(8):
            ends = rng.uniform(0, size, (2, 2))
            along = ends[1] - ends[0]
            share = np.clip((places - ends[0]) @ along / (along @ along), 0, 1)
            distance = np.linalg.norm(places - ends[0] - share[..., None] * along, axis=-1)
            image += np.exp(-(distance**2)) * rng.uniform(0.3, 1)
    return images


def waves(rng: np.random.Generator) -> npt.NDArray[np.floating]:
    """The sum of five waves of random direction, length and phase in each image."""
    rows, columns = np.mgrid[:28, :28]
    frequency = rng.normal(0, 0.5, (2_000, 5, 2, 1, 1))
    phase = rng.uniform(0, 2 * np.pi, (2_000, 5, 1, 1))
    return np.asarray(0.5 + 0.1 * np.sin(frequency[:, :, 0] * rows + frequency[:, :, 1] * columns + phase).sum(1))


def even(classes: Sequence[int], count: int) -> dict[int, int]:
    return dict.fromkeys(classes, count)


def geometric(count: int, largest: int, smallest: int) -> list[int]:
    """Sizes that fall by the same factor from class to class."""
    return [round(size) for size in np.geomspace(largest, smallest, count)]


def fashion(**counts: int) -> dict[int, int]:
    return {FASHION.index(name): count for name, count in counts.items()}


EVERY = range(10)
DISTINCT = "ABEGHKMQRSTUWXYZ&@#%?$*+236789aejt{>~=Δ"
"""Signs for the smaller sets."""

SETS: dict[str, ZooSet] = {
    # for design: among them everything that shaped the rules of version 0.1
    "digits": ZooSet(10, "handwriting", "design", whole("digits")),
    "usps": ZooSet(10, "handwriting", "design", whole("usps")),
    "mnist": ZooSet(10, "handwriting, large", "design", whole("mnist")),
    "fashion": ZooSet(10, "clothes", "design", subset("fashion-mnist", even(EVERY, 600))),
    "mnist-38": ZooSet(2, "handwriting", "design", subset("mnist", even([3, 8], 2_000))),
    "mnist-0247": ZooSet(4, "handwriting", "design", subset("mnist", even([0, 2, 4, 7], 1_000))),
    "fashion-3": ZooSet(3, "clothes", "design", subset("fashion-mnist", fashion(trouser=1500, sandal=1500, bag=1500))),
    "mnist-fashion": ZooSet(
        20, "mixed", "design", together(subset("mnist", even(EVERY, 300)), subset("fashion-mnist", even(EVERY, 300)))
    ),
    "usps-lying": ZooSet(19, "handwriting", "design", upright_and_lying(subset("usps", even(EVERY, 250)), same=[0])),
    "mnist-inverted": ZooSet(10, "inverted", "design", inverted(subset("mnist", even(EVERY, 500)))),
    "mnist-unequal": ZooSet(
        10, "unequal", "design", subset("mnist", dict(zip(EVERY, geometric(10, 1_500, 150), strict=True)))
    ),
    "fashion-unequal": ZooSet(
        5, "unequal", "design", subset("fashion-mnist", fashion(bag=2000, trouser=1000, boot=600, dress=320, sandal=80))
    ),
    "mnist-copies": ZooSet(10, "near-duplicates", "design", copies(subset("mnist", even(EVERY, 50)), 8)),
    "mnist-color": ZooSet(10, "color", "design", tinted(subset("mnist", even(EVERY, 400)))),
    "letters-26": ZooSet(26, "signs", "design", printed(glyphs.LETTERS, 200)),
    "signs-62": ZooSet(62, "signs", "design", printed(glyphs.SIGNS[:62], 90, black=True)),
    "signs-13-unequal": ZooSet(13, "unequal", "design", printed(DISTINCT[:13], geometric(13, 800, 40))),
    "signs-8-photo": ZooSet(8, "photographic background", "design", on_photographs("ABEHKMR&", 400, "cifar10", True)),
    "fours": ZooSet(1, "one class", "design", subset("mnist", {4: 5_000})),
    "hands": ZooSet(1, "one class", "design", gray_arrays("mednist", "Hand")),
    "noise-uniform": ZooSet(0, "noise", "design", nothing(uniform_noise)),
    "noise-pink": ZooSet(0, "noise", "design", nothing(pink_noise)),
    "mednist": ZooSet(6, "photographs", "design", pictures("mednist")),
    "sign-digits": ZooSet(10, "photographs", "design", pictures("sign-digits")),
    "cifar10": ZooSet(10, "photographs", "design", pictures("cifar10")),
    # held out: reported, and nothing else
    "usps-5": ZooSet(5, "handwriting", "held out", subset("usps", even([0, 1, 2, 6, 7], 500))),
    "mnist-7": ZooSet(7, "handwriting", "held out", subset("mnist", even([0, 1, 2, 3, 5, 6, 9], 500))),
    "fashion-2": ZooSet(2, "clothes", "held out", subset("fashion-mnist", fashion(pullover=1_200, boot=1_200))),
    "fashion-4": ZooSet(
        4, "clothes", "held out", subset("fashion-mnist", fashion(trouser=800, coat=800, sneaker=800, bag=800))
    ),
    "fashion-signs": ZooSet(
        15,
        "mixed",
        "held out",
        together(
            subset("fashion-mnist", fashion(trouser=250, dress=250, sandal=250, bag=250, boot=250)),
            printed("ABEHKMRSX&", 250),
        ),
    ),
    "fashion-inverted": ZooSet(
        6,
        "inverted",
        "held out",
        inverted(subset("fashion-mnist", fashion(trouser=500, pullover=500, dress=500, sandal=500, bag=500, boot=500))),
    ),
    "mnist-8-unequal": ZooSet(
        8, "unequal", "held out", subset("mnist", dict(zip([1, 0, 3, 7, 6, 2, 8, 4], [700] * 7 + [100], strict=True)))
    ),
    "signs-3-small": ZooSet(3, "signs, few images", "held out", printed("AGX", 100)),
    "signs-10-large": ZooSet(10, "signs, large", "held out", printed("ABEGHKMQRS", 6_000)),
    "signs-15-small": ZooSet(15, "signs, few images", "held out", printed(DISTINCT[10:25], 20)),
    "signs-40": ZooSet(40, "signs", "held out", printed(glyphs.SIGNS[40:80], 110, black=True)),
    "signs-100": ZooSet(100, "signs", "held out", printed(glyphs.SIGNS, 60)),
    "signs-20-copies": ZooSet(20, "near-duplicates", "held out", copies(printed(DISTINCT[:20], 20), 10)),
    "signs-20-unequal": ZooSet(20, "unequal", "held out", printed(DISTINCT[:20], geometric(20, 1_000, 20))),
    "signs-13-color": ZooSet(13, "color", "held out", tinted(printed(DISTINCT[13:26], 250))),
    "letters-26-photo": ZooSet(
        26, "photographic background", "held out", on_photographs(glyphs.LETTERS, 200, "cifar10")
    ),
    "signs-6-photo": ZooSet(
        6, "photographic background", "held out", on_photographs("GQSTWZ", 300, "sign-digits", black=True)
    ),
    "trousers": ZooSet(1, "one class", "held out", subset("fashion-mnist", {1: 1_000})),
    "letter-R": ZooSet(1, "one class", "held out", printed("R", 2_000)),
    "noise-blobs": ZooSet(0, "noise", "held out", nothing(blobs)),
    "noise-scratches": ZooSet(0, "noise", "held out", nothing(scratches)),
    "mednist-4-unequal": ZooSet(
        4, "photographs", "held out", pictures("mednist", {"Hand": 1_000, "HeadCT": 500, "CXR": 250, "BreastMRI": 35})
    ),
    "sign-digits-5": ZooSet(5, "photographs", "held out", pictures("sign-digits", dict.fromkeys("01258", 200))),
    "cifar10-3": ZooSet(
        3, "photographs", "held out", pictures("cifar10", {"airplane": 500, "automobile": 500, "frog": 500})
    ),
    # new: made when the rules were fixed
    "hebrew-22": ZooSet(22, "signs", "new", printed(glyphs.HEBREW_LETTERS, 150)),
    "thai-28": ZooSet(28, "signs", "new", printed(glyphs.THAI_LETTERS, 100, black=True)),
    "thai-12-unequal": ZooSet(12, "unequal", "new", printed(glyphs.THAI_LETTERS[::2][:12], geometric(12, 600, 30))),
    "hebrew-7-photo": ZooSet(7, "photographic background", "new", on_photographs("אגלמסצש", 300, "cifar10")),
    "hebrew-5-small": ZooSet(5, "signs, few images", "new", printed("בחטקת", 80)),
    "mnist-1569": ZooSet(4, "handwriting", "new", subset("mnist", even([1, 5, 6, 9], 800))),
    "usps-3-unequal": ZooSet(3, "unequal", "new", subset("usps", {0: 700, 4: 250, 9: 60})),
    "fashion-5": ZooSet(
        5, "clothes", "new", subset("fashion-mnist", fashion(top=500, dress=500, sneaker=500, bag=500, boot=500))
    ),
    "mednist-3": ZooSet(
        3, "photographs", "new", pictures("mednist", {"AbdomenCT": 600, "ChestCT": 600, "BreastMRI": 600})
    ),
    "sign-digits-4": ZooSet(4, "photographs", "new", pictures("sign-digits", dict.fromkeys("3479", 200))),
    "sneakers": ZooSet(1, "one class", "new", subset("fashion-mnist", {7: 1_500})),
    "noise-waves": ZooSet(0, "noise", "new", nothing(waves)),
}
"""All sets by name."""


def set_file(folder: Path, name: str) -> Path:
    """Where a set is: an array file or, for photographs, a folder."""
    file = folder / f"{name}.npz"
    return file if file.exists() else folder / name


def write(name: str, folder: Path, options: argparse.Namespace) -> None:
    """Make one set and write it, its images in random order."""
    rng = np.random.default_rng([options.seed, zlib.crc32(name.encode())])
    made = SETS[name].make(Sources(options.data_dir, options.pictures_dir, options.fonts_dir, rng))
    if isinstance(made, Photographs):
        shutil.rmtree(folder / name, ignore_errors=True)
        for kind, files in made.files.items():
            (folder / name / kind).mkdir(parents=True)
            for file in files:
                (folder / name / kind / file.name).symlink_to(file.absolute())
        sizes = [len(files) for files in made.files.values()]
    else:
        order = rng.permutation(len(made.labels))
        np.savez_compressed(folder / f"{name}.npz", images=made.images[order], labels=made.labels[order])
        sizes = np.bincount(made.labels).tolist()
    print(f"{name}: {sum(sizes):,} images, classes of {min(sizes):,} to {max(sizes):,}", flush=True)
    if options.sheet:
        sheet(made).save(folder / f"{name}.png")


def sheet(made: Arrays | Photographs, columns: int = 24, most: int = 30) -> Image.Image:
    """Some images of a set, a row per class; of a single class, 12 rows."""
    if isinstance(made, Photographs):
        listed = [files[:columns] for files in made.files.values()]
        rows = [[np.asarray(Image.open(file).convert("RGB")) for file in files] for files in listed]
    else:
        rows = [list(made.images[made.labels == kind][:columns]) for kind in np.unique(made.labels)[:most]]
    if len(rows) == 1 and isinstance(made, Arrays):
        rows = [list(made.images[start : start + columns]) for start in range(0, 12 * columns, columns)]
    side = rows[0][0].shape[0] + 2
    page = Image.new("RGB", (columns * side, len(rows) * side), (0, 90, 160))
    for y, row in enumerate(rows):
        for x, image in enumerate(row):
            page.paste(Image.fromarray(image), (x * side, y * side))
    return page


def environment_path(name: str) -> Path | None:
    value = os.environ.get(name)
    return Path(value) if value else None


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """Where the images of the sets come from."""
    parser.add_argument("--data-dir", type=Path, default=environment_path("CTS_DATA"))
    parser.add_argument("--pictures-dir", type=Path, default=environment_path("CTS_PICTURES"))
    parser.add_argument("--fonts-dir", type=Path, default=Path("/usr/share/fonts"))
    parser.add_argument("--sheet", action="store_true", help="write some images of each set as NAME.png too")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--list", action="store_true")
    add_source_options(parser)
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in SETS]
    if unknown:
        parser.error(f"there is no set {unknown[0]!r}; --list prints them")
    if options.list:
        for name, about in SETS.items():
            print(f"{name:20} {about.half:9} K {about.classes:3}  {about.kind}")
        return
    if options.out is None:
        parser.error("--out FOLDER: where to write the sets")
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names or SETS:
        write(name, options.out, options)


if __name__ == "__main__":
    main()
