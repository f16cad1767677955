"""How files are spoilt: anything put into plain data, bytes damaged, chunks changed and their checksums made right."""

from __future__ import annotations

import io
import random
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st

NUMBERS = [0, -1, 1, 2**31, 2**63, 10**30, -(10**30), 0.5, -0.0, 1e308, -1e308, True, False]
words = st.sampled_from(["", "a", "\x1b[2J", "\ud800", "../../etc/passwd", "/dev/zero", "\0", "é" * 300, "1e999"])
anything = st.recursive(
    st.none() | st.sampled_from(NUMBERS) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
"""JSON values of every kind."""
dice = st.integers(0, 2**32).map(random.Random)


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a tree of plain data."""
    yield path
    inside = data.items() if isinstance(data, dict) else enumerate(data[:4]) if isinstance(data, list) else ()
    for key, value in inside:
        yield from places(value, (*path, key))


def put(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of the data with one place changed."""
    if not path:
        return value
    copy = data.copy()
    copy[path[0]] = put(data[path[0]], path[1:], value)
    return copy


@st.composite
def spoilt(draw: st.DrawFn, data: Any) -> Any:
    """Plain data with one to three places replaced by anything at all."""
    for _ in range(draw(st.integers(1, 3))):
        data = put(data, draw(st.sampled_from(list(places(data)))), draw(anything))
    return data


def spoil_bytes(content: bytes, rng: random.Random) -> bytes:
    """Bytes changed, cut, doubled or put in, the way damage and malice do it."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        # Headers matter most.
        at = rng.choice((rng.randrange(min(200, len(changed)) + 1), rng.randrange(len(changed) + 1)))
        match rng.randrange(6):
            case 0:
                del changed[at:]
            case 1:
                changed[at : at + 1] = bytes([rng.randrange(256)])
            case 2:
                number = struct.pack(rng.choice("<>") + "I", rng.choice((0, 1, 2**31 - 1, 2**32 - 1, 40_000)))
                changed[at : at + 4] = number
            case 3:
                changed[at : at + 8] = struct.pack(">Q", rng.choice((0, 2**40, 2**63, 2**64 - 1)))
            case 4:
                changed[at : at + 2] = struct.pack(rng.choice("<>") + "H", rng.choice((0, 1, 9_000, 2**15, 2**16 - 1)))
            case _:
                changed[at:at] = changed[: rng.randrange(40)]
    return bytes(changed) if changed != content else content[:-1]  # chance may have put back what was there


def spoil_png(content: bytes, rng: random.Random) -> bytes:
    """One to three chunks spoilt, left out, doubled or moved, each with a checksum that is right."""
    chunks, at = [], 8
    while at < len(content):
        length = int.from_bytes(content[at : at + 4], "big")
        chunks.append((content[at + 4 : at + 8], content[at + 8 : at + 8 + length]))
        at += length + 12
    for _ in range(rng.randint(1, 3)):
        which = rng.randrange(len(chunks))
        kind, inside = chunks[which]
        match rng.randrange(4):
            case 0:
                chunks[which] = kind, spoil_bytes(inside, rng)
            case 1:
                chunks.insert(rng.randrange(len(chunks) + 1), (kind, inside))
            case 2:
                kinds = (b"PLTE", b"tRNS", b"iCCP", b"zTXt", b"iTXt", b"eXIf", b"acTL", b"fcTL", b"fdAT", b"gAMA")
                chunks.insert(rng.randrange(len(chunks) + 1), (rng.choice(kinds), rng.randbytes(rng.randrange(60))))
            case _:
                chunks.append(chunks.pop(which))
    parts = (struct.pack(">I", len(i)) + k + i + struct.pack(">I", zlib.crc32(k + i)) for k, i in chunks)
    return content[:8] + b"".join(parts)


def npy(header: str, content: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    """An array file with this header, whatever it says."""
    text = header.encode("latin1")
    size = struct.pack("<H" if version[0] == 1 else "<I", len(text))
    return b"\x93NUMPY" + version + size + text + content


def whole_array(shape: tuple[int, ...], dtype: str = "|u1") -> bytes:
    """An array file that is right."""
    file = io.BytesIO()
    np.save(file, np.zeros(shape, dtype))
    return file.getvalue()


def npz(**members: bytes) -> bytes:
    """An archive of array files."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def idx(kind: int, *shape: int, content: bytes = b"") -> bytes:
    """An IDX file with this header, whatever it says."""
    return bytes([0, 0, kind, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + content
