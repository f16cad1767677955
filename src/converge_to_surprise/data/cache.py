"""A cache of decoded pictures: memory-mapped arrays, named by a hash of everything that they depend on.

A set lies in one folder, built under a temporary name and renamed when it is complete. A builder holds a lock beside
its temporary folder; a temporary folder or lock that no process holds was left by a killed builder and is removed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import PIL
from filelock import FileLock, Timeout

from ..config.images import ImageOptions
from .decode import DECODER
from .formats import optional_decoders
from .listing import Listing
from .resize import Shape
from .shared_decoding import DecodeJob, decode_all
from .skipped import SkippedFile
from .store import map_array
from .working_size import working_shape

Progress = Callable[[int, int], None]
"""Called with the number of files done and of all files."""
BUILDING = "building-"


@dataclass(frozen=True)
class Decoded:
    """All pictures of a listing that could be decoded."""

    pixels: npt.NDArray[np.uint8]
    """(n, C, H, W), memory-mapped"""
    positions: npt.NDArray[np.int64]
    """(n,) Their positions in the listing."""
    quarantine: list[SkippedFile]


def cached(
    listing: Listing, options: ImageOptions, shape: Shape | None = None, progress: Progress | None = None
) -> Decoded:
    """Decode all pictures, or take them from the cache if no file and no setting has changed.

    ``shape``: the exact (C, H, W) of the result, instead of the size that the pictures and ``options`` call for.
    """
    root = cache_folder()
    _sweep(root)
    files = _state(listing)
    request = "x".join(map(str, shape)) if shape else f"{options.image_size or 'own'}-{options.color}"
    key = f"{files}-{request}"
    found = _find(root, files, shape, len(listing)) if shape else _open_whole(root / key, len(listing))
    if found is None:
        shape = shape or working_shape(listing, options)
        job = DecodeJob(listing, shape, options.threads, progress)
        _build(root, key, {"request": request}, job)
        found = _open_whole(root / key, len(listing))
        if found is None:
            raise ValueError(f"the pictures just decoded cannot be read back from {root / key}")
    return found


def cache_folder() -> Path:
    """CTS_CACHE, or a folder of this program where the user's caches are."""
    own = os.environ.get("CTS_CACHE")
    general = os.environ.get("XDG_CACHE_HOME")
    try:
        root = Path(own) if own else (Path(general) if general else Path.home() / ".cache") / "converge-to-surprise"
    except RuntimeError as error:
        raise ValueError(f"there is no place for a cache ({error}); set CTS_CACHE to a folder of yours") from None
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        raise ValueError(
            f"decoded pictures cannot be kept in the cache folder {root}: {error.strerror}; "
            "set CTS_CACHE to a folder of yours"
        ) from None
    return root


def _state(listing: Listing) -> str:
    """A hash of the state of the files, including their permissions, which decide what is skipped."""
    digest = hashlib.sha256(json.dumps([DECODER, PIL.__version__, optional_decoders(), len(listing)]).encode())
    for path, name in zip(listing.paths, listing.names, strict=True):
        try:
            status = os.stat(path)
            state = f"{status.st_size} {status.st_mtime_ns} {status.st_mode} {status.st_uid} {status.st_gid}"
        except (OSError, ValueError) as error:
            state = str(getattr(error, "errno", "?"))
        digest.update(json.dumps([path, name, state]).encode())
    return digest.hexdigest()[:40]


def _find(root: Path, files: str, shape: Shape, count: int) -> Decoded | None:
    """The same files decoded to that shape by any request: ``fit`` asks for a size by its options, ``resume`` and the
    other processes of a run for the exact shape.
    """
    for folder in sorted(root.glob(f"{files}-*")):
        found = _open_whole(folder, count)
        if found is not None and found.pixels.shape[1:] == shape:
            return found
    return None


def _open_whole(folder: Path, files: int) -> Decoded | None:
    """The set in a folder, or None if there is none or it is damaged."""
    try:
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        shape = tuple(about["shape"])
        quarantine = [SkippedFile(*map(str, entry)) for entry in about["quarantine"]]
        positions = np.load(folder / "positions.npy", allow_pickle=False)
        pixels = map_array(folder / "pixels.npy") if len(positions) else np.empty(shape, np.uint8)
        sound = (
            pixels.shape == shape
            and pixels.dtype == np.uint8
            and positions.shape == shape[:1]
            and positions.dtype == np.int64
            and len(positions) + len(quarantine) == about["files"] == files
            and (folder / "pixels.npy").stat().st_size == about["bytes"]
        )
    except (OSError, ValueError, TypeError, KeyError, EOFError):
        return None
    return Decoded(pixels, positions, quarantine) if sound else None


def _build(root: Path, key: str, about: dict[str, Any], job: DecodeJob) -> None:
    """Decode into a temporary folder, then rename it."""
    needed = len(job.listing) * int(np.prod(job.shape))
    with _building_folder(root) as folder:
        if shutil.disk_usage(root).free < needed:
            raise ValueError(_no_room(root, needed))
        try:
            about |= _decode_into(folder, job)
            (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")
            _put_in_place(folder, root / key, len(job.listing))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise ValueError(_no_room(root, needed)) from None
            raise ValueError(f"decoded pictures cannot be kept in {root}: {error.strerror or error}") from None
        _drop_superseded(root, key, about)


def _decode_into(folder: Path, job: DecodeJob) -> dict[str, Any]:
    """Write pixels.npy and positions.npy; returns the description of the set."""
    listing, shape = job.listing, job.shape
    with (folder / "pixels.npy").open("wb") as file:
        _write_header(file, (len(listing), *shape))
        kept, quarantine = decode_all(file, job)
        size = file.tell()
        file.seek(0)
        _write_header(file, (len(kept), *shape))
        file.flush()
        os.fsync(file.fileno())
    np.save(folder / "positions.npy", kept)
    return {
        "source": os.path.abspath(listing.source),
        "files": len(listing),
        "shape": [len(kept), *shape],
        "bytes": size,
        "quarantine": quarantine,
    }


def _write_header(file: IO[bytes], shape: tuple[int, ...]) -> None:
    """numpy pads it, so that it can be written again when the number of pictures is known."""
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})


def _put_in_place(folder: Path, final: Path, files: int) -> None:
    """Rename the folder. Another builder may have finished first, or the place may hold a damaged set."""
    try:
        folder.rename(final)
    except OSError:
        if _open_whole(final, files) is None:
            shutil.rmtree(final, ignore_errors=True)
            if final.is_file():
                final.unlink()
            folder.rename(final)


def _drop_superseded(root: Path, key: str, about: dict[str, Any]) -> None:
    """Remove the sets of the same source and request that were decoded before its files changed."""
    if not os.path.exists(about["source"]):
        return
    for other in root.glob("*/about.json"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            known = json.loads(other.read_text(encoding="utf-8"))
            same = all(known[part] == about[part] for part in ("source", "request"))
            if same and other.parent.name != key and not other.parent.name.startswith(BUILDING):
                shutil.rmtree(other.parent)


@contextlib.contextmanager
def _building_folder(root: Path) -> Iterator[Path]:
    """An empty folder, removed afterwards unless it was renamed. Its lock is acquired before it is created."""
    folder = root / f"{BUILDING}{secrets.token_hex(8)}"
    lock = FileLock(f"{folder}.lock")
    try:
        lock.acquire()
        while not os.path.exists(lock.lock_file):  # removed by _sweep between its creation and its locking
            lock.release()
            lock.acquire()
        folder.mkdir(mode=0o700)  # the pictures may be private
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()
        Path(lock.lock_file).unlink(missing_ok=True)


def _sweep(root: Path) -> None:
    """Remove what killed builders left: a folder, or a lock whose folder was not created yet or was renamed already.

    A lock that is just being created may be removed as well; its builder notices that and creates it again.
    """
    for name in {path.name.removesuffix(".lock") for path in root.glob(f"{BUILDING}*")}:
        lock = FileLock(root / f"{name}.lock", timeout=0)
        with contextlib.suppress(Timeout, OSError), lock:
            shutil.rmtree(root / name, ignore_errors=True)
            Path(lock.lock_file).unlink(missing_ok=True)


def _no_room(root: Path, needed: int) -> str:
    return (
        f"the decoded pictures need {needed / 1e6:,.1f} MB in {root}, which has "
        f"{shutil.disk_usage(root).free / 1e6:,.1f} MB left; make room or set CTS_CACHE to another folder"
    )
