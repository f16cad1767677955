"""Pictures of printed signs for the zoo: many fonts, sizes and small distortions, on plain or photographic backgrounds.

The fonts are free ones of Debian (``FONTS``, and for other scripts ``HEBREW`` and ``THAI``), found by name below
``fonts_dir``. Of signs that look the same in many fonts only one is in ``SIGNS``: O but not 0 or o; I but not l or |;
C, K, P, S, U, V, W, X, Y, Z but not their small forms; Π but not π.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter, ImageFont

Pixels = npt.NDArray[np.uint8]

FONTS: dict[str, tuple[str, ...]] = {
    "fonts-cantarell": ("Cantarell-Regular.otf", "Cantarell-Bold.otf"),
    "fonts-cmu": ("cmunrm.ttf", "cmunbx.ttf", "cmunss.ttf", "cmuntt.ttf"),
    "fonts-crosextra-carlito": ("Carlito-Regular.ttf", "Carlito-Bold.ttf"),
    "fonts-dejavu-core": (
        "DejaVuSans.ttf",
        "DejaVuSans-Bold.ttf",
        "DejaVuSansMono.ttf",
        "DejaVuSerif.ttf",
        "DejaVuSerif-Bold.ttf",
    ),
    "fonts-ebgaramond": ("EBGaramond12-Regular.otf",),
    "fonts-firacode": ("FiraCode-Regular.ttf", "FiraCode-Bold.ttf"),
    "fonts-freefont-ttf": ("FreeMonoBold.ttf", "FreeSans.ttf", "FreeSerifBold.ttf"),
    "fonts-hack": ("Hack-Regular.ttf", "Hack-Bold.ttf"),
    "fonts-inter": ("Inter-Regular.otf", "Inter-Bold.otf"),
    "fonts-jetbrains-mono": ("JetBrainsMono-Regular.ttf", "JetBrainsMono-Bold.ttf"),
    "fonts-lato": ("Lato-Regular.ttf", "Lato-Black.ttf"),
    "fonts-liberation": (
        "LiberationMono-Regular.ttf",
        "LiberationSans-Regular.ttf",
        "LiberationSansNarrow-Bold.ttf",
        "LiberationSerif-Regular.ttf",
    ),
    "fonts-linuxlibertine": ("LinBiolinum_R.otf", "LinLibertine_R.otf", "LinLibertine_RB.otf"),
    "fonts-noto-core": ("NotoSans-Regular.ttf", "NotoSans-Bold.ttf", "NotoSerif-Regular.ttf", "NotoSerif-Bold.ttf"),
    "fonts-oldstandard": ("OldStandard-Regular.ttf", "OldStandard-Bold.ttf"),
    "fonts-open-sans": ("OpenSans-Regular.ttf", "OpenSans-Bold.ttf"),
    "fonts-roboto-unhinted": ("Roboto-Regular.ttf", "Roboto-Bold.ttf"),
    "fonts-sil-gentium": ("Gentium-R.ttf",),
    "fonts-urw-base35": (
        "C059-Roman.otf",
        "C059-Bold.otf",
        "NimbusMonoPS-Bold.otf",
        "NimbusRoman-Regular.otf",
        "NimbusSans-Bold.otf",
        "NimbusSansNarrow-Regular.otf",
        "P052-Roman.otf",
        "P052-Bold.otf",
        "URWBookman-Light.otf",
        "URWBookman-Demi.otf",
        "URWGothic-Book.otf",
        "URWGothic-Demi.otf",
    ),
    "fonts-vollkorn": ("Vollkorn-Regular.ttf", "Vollkorn-Bold.ttf"),
}
"""By Debian package, upright faces that have all of ``SIGNS``."""
HEBREW: dict[str, tuple[str, ...]] = {
    "culmus": (
        "DavidCLM-Medium.otf",
        "DavidCLM-Bold.otf",
        "FrankRuehlCLM-Medium.ttf",
        "FrankRuehlCLM-Bold.ttf",
        "HadasimCLM-Regular.ttf",
        "HadasimCLM-Bold.ttf",
        "KeterYG-Medium.ttf",
        "KeterYG-Bold.ttf",
        "MiriamCLM-Book.ttf",
        "MiriamCLM-Bold.ttf",
        "MiriamMonoCLM-Book.ttf",
        "MiriamMonoCLM-Bold.ttf",
        "NachlieliCLM-Light.otf",
        "NachlieliCLM-Bold.otf",
        "SimpleCLM-Medium.ttf",
        "SimpleCLM-Bold.ttf",
        "ShofarRegular.ttf",
        "StamAshkenazCLM.ttf",
        "StamSefaradCLM.ttf",
    ),
    "fonts-dejavu-core": ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf"),
    "fonts-freefont-ttf": ("FreeMonoBold.ttf", "FreeSans.ttf", "FreeSerifBold.ttf"),
}
THAI: dict[str, tuple[str, ...]] = {
    "fonts-thai-tlwg": tuple(
        f"{family}{weight}.ttf"
        for family in (
            *("Garuda", "Kinnari", "Laksaman", "Loma", "Norasi", "Purisa", "Sawasdee", "TlwgMono"),
            *("TlwgTypewriter", "TlwgTypist", "TlwgTypo", "Umpush", "Waree"),
        )
        for weight in ("", "-Bold")
    ),
}

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
SIGNS = (
    LETTERS + "abdefghijmnrt" + "123456789" + "&@#%?$+=*<>~{}"  # the first 62
    "ΓΔΘΛΞΠΣΦΨΩδλξω" + "БДЖИЦЧШЫЭЮЯ" + '€£§¶©æ¿«»±÷^"'
)
"""100 signs that differ in shape."""
HEBREW_LETTERS = "אבגדהוזחטיכלמנסעפצקרשת"
THAI_LETTERS = "กขคงจฉชซญฐฑณดตทธนบผพมยรลวสหอ"
OVERSAMPLED = 4
"""Signs are drawn and distorted at this multiple of their size."""


class Distortion(NamedTuple):
    """How far a sign may differ from the font's own; each is drawn evenly between minus and plus, or 0 and it."""

    rotation: float = 8.0
    """Degrees."""
    shear: float = 0.12
    shift: float = 2.0
    """Pixels."""
    smallest: float = 0.75
    """Of the largest size."""
    blur: float = 0.7
    """Radius, pixels."""
    noise: float = 0.06
    """Standard deviation, of the range of pixels."""


TINY = Distortion(rotation=2, shear=0.02, shift=0.6, smallest=0.97, blur=0.4, noise=0.03)
"""What two scans of the same print differ by."""


def fonts_for(sign: str) -> dict[str, tuple[str, ...]]:
    """The fonts in which a sign is printed, by its script."""
    return HEBREW if sign in HEBREW_LETTERS else THAI if sign in THAI_LETTERS else FONTS


@lru_cache
def installed_fonts(fonts_dir: Path) -> dict[str, Path]:
    """All files of fonts by their names."""
    return {file.name: file for file in sorted(fonts_dir.rglob("*")) if file.suffix in (".ttf", ".otf")}


def font_files(fonts_dir: Path, sign: str) -> tuple[Path, ...]:
    """The files of all fonts for signs like this one."""
    found, fonts = installed_fonts(fonts_dir), fonts_for(sign)
    names = [name for faces in fonts.values() for name in faces]
    missing = [name for name in names if name not in found]
    if missing:
        raise SystemExit(f"no {missing[0]} below {fonts_dir}: apt-get install {' '.join(fonts)}, or name --fonts-dir")
    return tuple(found[name] for name in names)


@lru_cache(maxsize=10_000)
def print_of(sign: str, file: Path, side: int) -> Image.Image:
    """A sign of a font, undistorted, white on black, its box in the middle of OVERSAMPLED * side pixels squared.

    Letters have the sizes they have beside each other in a text. A sign larger than the picture is made smaller.
    """
    whole, size = side * OVERSAMPLED, int(0.95 * side * OVERSAMPLED)
    while True:
        font = ImageFont.truetype(str(file), size)
        left, top, right, bottom = font.getbbox(sign)
        if max(right - left, bottom - top) <= 0.86 * whole:
            break
        size = int(0.95 * size)
    picture = Image.new("L", (whole, whole))
    place = (whole - left - right) / 2, (whole - top - bottom) / 2
    ImageDraw.Draw(picture).text(place, sign, fill=255, font=font)
    return picture


def distorted(picture: Image.Image, side: int, limits: Distortion, rng: np.random.Generator) -> Pixels:
    """A smaller picture after random rotation, shear, scale, shift and blur. (side, side)"""
    angle = np.deg2rad(rng.uniform(-limits.rotation, limits.rotation))
    scale = rng.uniform(limits.smallest, 1.0)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    shear = np.array([[1.0, rng.uniform(-limits.shear, limits.shear)], [0.0, 1.0]])
    inverse = np.linalg.inv(scale * turn @ shear)
    middle = np.array(picture.size) / 2
    shift = OVERSAMPLED * rng.uniform(-limits.shift, limits.shift, 2)
    offset = middle - inverse @ (middle + shift)
    rows = (*inverse[0], offset[0], *inverse[1], offset[1])
    moved = picture.transform(picture.size, Image.Transform.AFFINE, rows, Image.Resampling.BILINEAR)
    small = moved.filter(ImageFilter.GaussianBlur(OVERSAMPLED * rng.uniform(0, limits.blur)))
    return np.asarray(small.resize((side, side), Image.Resampling.BOX))


def masks(
    signs: str, counts: list[int], fonts_dir: Path, rng: np.random.Generator, side: int = 28
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """``counts[i]`` pictures of ``signs[i]``, which are of one script, ink 1 on 0, with the numbers of their signs.
    (N, side, side), (N,)
    """
    files, limits = font_files(fonts_dir, signs[0]), Distortion()
    labels = np.repeat(np.arange(len(signs)), counts)
    chosen = rng.integers(len(files), size=len(labels))
    drawn = [
        distorted(print_of(signs[label], files[file], side), side, limits, rng)
        for label, file in zip(labels, chosen, strict=True)
    ]
    return np.stack(drawn).astype(np.float32) / np.float32(255), labels.astype(np.int64)


def noisy(images: npt.NDArray[np.float32], rng: np.random.Generator, noise: float = Distortion().noise) -> Pixels:
    """Images from 0 to 1 as bytes, each with noise of its own strength up to ``noise``."""
    strength = rng.uniform(0, noise, (len(images), *[1] * (images.ndim - 1)))
    changed = images + strength * rng.standard_normal(images.shape, dtype=np.float32)
    return np.rint(255 * np.clip(changed, 0, 1)).astype(np.uint8)
