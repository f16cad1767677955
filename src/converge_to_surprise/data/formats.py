"""Picture formats, how files are recognized, and which formats this installation can read.

The first bytes of a file decide. Its name decides only whether the file is opened, and the message for a file whose
bytes are not recognized. Camera raws are the exception: many of them begin like a TIFF file.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from PIL import Image, features

HEAD = 32
"""Bytes of a file that are enough to recognize it."""


class Format(NamedTuple):
    """A picture format, or a family of them."""

    label: str
    """What skipped files of this format are counted as."""
    openers: tuple[str, ...] = ()
    """Pillow's names of what can open it; none: it is never read."""
    remedy: str = ""
    """Why it is not read, and what to do about it."""


STANDARD = Format("standard", ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP"))
AVIF = Format(
    "AVIF (needs Pillow 11.3)", ("AVIF",), "AVIF pictures need Pillow 11.3 or later: pip install --upgrade pillow"
)
HEIC = Format(
    "HEIC (needs pillow-heif)",
    ("HEIF",),
    "HEIC pictures need pillow-heif: pip install 'converge-to-surprise[photos]'",
)
RAW = Format("camera raw", (), "camera raw; export it as JPEG")


def _unsupported(label: str, target: str = "PNG") -> Format:
    return Format(label, (), f"{label} files are not supported; convert them to {target}")


JXL, JPEG_2000 = _unsupported("JPEG XL", "JPEG"), _unsupported("JPEG 2000", "JPEG")
PSD, SVG = _unsupported("Photoshop"), _unsupported("SVG")


def _endings(words: str) -> frozenset[str]:
    return frozenset(f".{word}" for word in words.split())


READ = _endings("apng avif avifs bmp dib gif heic heics heif heifs hif jfi jfif jif jpe jpeg jpg png tif tiff webp")
"""Endings of files that are read."""
UNREAD: dict[str, Format] = {
    ending: family
    for family, words in (
        (RAW, "3fr arw cr2 cr3 crw dcr dng erf gpr iiq kdc mef mrw nef nrw orf pef raf raw rw2 rwl sr2 srf srw x3f"),
        (JXL, "jxl"),
        (JPEG_2000, "j2c j2k jp2 jpc jpf jpx"),
        (PSD, "psb psd"),
        (SVG, "svg svgz"),
        (_unsupported("DICOM"), "dcm dicom"),
        (_unsupported("drawing"), "ai emf eps wmf"),
        (_unsupported("FITS"), "fit fits"),
        (_unsupported("GIMP"), "xcf"),
        (_unsupported("high dynamic range"), "exr hdr"),
        (_unsupported("icon"), "cur icns ico"),
        (_unsupported("JPEG XR"), "hdp jxr wdp"),
        (_unsupported("Netpbm"), "pam pbm pfm pgm pnm ppm"),
        (_unsupported("PCX"), "pcx"),
        (_unsupported("Targa"), "tga"),
        (_unsupported("texture"), "dds ktx"),
    )
    for ending in _endings(words)
}
"""Endings of pictures that are not read."""
NO_PICTURES = _endings(
    "3gp 7z aac aae avi bat bz2 c cfg conf cpp css csv db dll doc docx exe flac gz h h5 hdf5 htm html ini ipynb java "
    "js json jsonl lnk log m4a m4v md mkv mov mp3 mp4 mpeg mpg npy npz odt ogg onnx parquet pdf pkl ppt pptx pt pth "
    "py rar rst safetensors sh so sqlite tar thm toml tsv txt url wav webm wmv xls xlsx xml xmp xz yaml yml zip"
)
"""Endings of files that are not opened to look at their first bytes. (.thm: the still of a video.)"""

_BRANDS = {
    **dict.fromkeys((b"avif", b"avis"), AVIF),
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"), HEIC),
    b"crx ": RAW,
}
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_SIGNATURES: tuple[tuple[bytes, Format], ...] = (
    (b"\xff\xd8\xff", STANDARD),
    (b"\x89PNG\r\n\x1a\n", STANDARD),
    (b"GIF87a", STANDARD),
    (b"GIF89a", STANDARD),
    *((signature, STANDARD) for signature in _TIFF),
    (b"FUJIFILMCCD-RAW", RAW),
    (b"IIRO", RAW),
    (b"IIRS", RAW),
    (b"MMOR", RAW),
    (b"IIU\0", RAW),
    (b"FOVb", RAW),
    (b"8BPS", PSD),
    (b"\0\0\0\x0cJXL \r\n\x87\n", JXL),
    (b"\0\0\0\x0cjP  \r\n\x87\n", JPEG_2000),
)
_BMP_HEADERS = (12, 16, 40, 52, 56, 64, 108, 124)


def recognize(head: bytes, ending: str = "") -> Format | None:
    """The format of a file, from its first ``HEAD`` bytes and the ending of its name; None if it is unknown."""
    found, named = _by_content(head), UNREAD.get(ending.lower())
    if named is RAW and head.startswith(_TIFF):
        return RAW
    return found or named


def decodable(found: Format) -> bool:
    """Whether files of this format can be read in this installation."""
    if found is HEIC:
        return heif_version() is not None
    return avif_version() is not None if found is AVIF else bool(found.openers)


def readable() -> list[str]:
    """Pillow's names of all formats that this installation can read."""
    return sorted(opener for known in (STANDARD, AVIF, HEIC) if decodable(known) for opener in known.openers)


def optional_decoders() -> list[str]:
    """The versions of the optional decoders, on which decoded pictures depend."""
    return [f"AVIF {avif_version()}", f"HEIF {heif_version()}"]


@functools.cache
def avif_version() -> str | None:
    """Pillow's AVIF decoder, where it has one."""
    there = "avif" in features.modules and features.check_module("avif")
    return features.version_module("avif") if there else None


@functools.cache
def heif_version() -> str | None:
    """The version of pillow-heif, if it is installed; imports it and registers it with Pillow once.

    Before 1.4 its decoder did not compare the size that a file claims with the size that it decodes.
    """
    try:
        import pillow_heif

        version = pillow_heif.__version__
        if tuple(int(part) for part in version.split(".")[:2]) < (1, 4):
            return None
        pillow_heif.register_heif_opener()
    except (ImportError, ValueError):
        return None
    return version if "HEIF" in Image.OPEN else None


def _by_content(head: bytes) -> Format | None:
    if head[4:8] == b"ftyp":
        return _by_brand(head)
    if head.startswith(_TIFF) and head[8:10] == b"CR":
        return RAW
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return STANDARD
    # Many texts begin with these two letters, so the length of the header must be valid too.
    if head.startswith(b"BM") and int.from_bytes(head[14:18], "little") in _BMP_HEADERS:
        return STANDARD
    return next((known for signature, known in _SIGNATURES if head.startswith(signature)), None)


def _by_brand(head: bytes) -> Format | None:
    """The format of an ISO media file: its brand, or one of those it is compatible with. None for videos."""
    brand = head[8:12]
    if brand not in (b"mif1", b"msf1"):
        return _BRANDS.get(brand)
    end = min(len(head), int.from_bytes(head[:4], "big"))
    others = (head[at : at + 4] for at in range(16, end - 3, 4))
    return next((_BRANDS[other] for other in others if other in _BRANDS), HEIC)
