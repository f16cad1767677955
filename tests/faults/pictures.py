"""Folders of pictures: their cache is starved or its making killed, and they change behind a run's back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from .child import ProcessGroup
from .harness import IMAGES, STEPS, demand, pictures_in, undisturbed
from .places import fill, one_line, refused
from .ward import Tally, Ward

OPERATIONS = 14
"""Operations on files in the making of a cache, about."""


def kill_in_decoding(ward: Ward, tally: Tally, count: int) -> None:
    """Kill −9 just before some operation on a file of the cache, again and again while one set is made."""
    while tally.tried < count:
        with tally.trial(0):
            patient = ward.patient(whole=ward.whole_of_pictures())
            ended = False
            while tally.tried < count and not ended:
                deadly = ProcessGroup(deadly=ward.rng.randint(1, OPERATIONS), deadly_place=patient.cache)
                ended = patient.await_end(patient.begin(world=deadly)) == 0
                tally.tried += not ended
                patient.examine()
            patient.recover()


def no_room_for_the_cache(ward: Ward, tally: Tally, count: int) -> None:
    """The disk with the cache is full, or becomes full while pictures are decoded; room is made."""
    for number in range(count):
        with tally.trial(), ward.small_disk(1 << 20) as disk:
            if disk is None:
                tally.how = "file size limit"
                patient = ward.patient(whole=ward.whole_of_pictures())
                code = patient.await_end(patient.begin(world=ProcessGroup(file_size=ward.rng.randrange(3000))))
            else:
                tally.how = "tmpfs"
                patient = ward.patient(whole=ward.whole_of_pictures())
                patient.cache = disk / "cache"
                fill(disk / "ballast", (0, 4096, 8192)[number % 3])
                code = patient.await_end(patient.begin())
                (disk / "ballast").unlink()
            one_line(patient, code, str(patient.cache))
            demand(not patient.run.path.exists(), "a run was begun")
            left = list(patient.cache.iterdir()) if patient.cache.exists() else []
            demand(not left, f"left in the cache: {left}")
            patient.recover()


def starved_decoding(ward: Ward, tally: Tally, count: int) -> None:
    """Address space runs out while large pictures are decoded: none of them may be skipped for that."""
    whole = undisturbed(ward.folder / "whole-large", "relaxed", 0.05, partial(pictures_in, large=6))
    refusals = 0
    for _ in range(count):
        with tally.trial():
            patient = ward.patient(whole=whole)
            spare = ward.rng.randrange(0, 120)
            code = patient.await_end(patient.begin(world=ProcessGroup(memory=spare << 20)))
            if code:
                refusals += 1
                one_line(patient, code, "memory")
            patient.examine()
            patient.recover()
    tally.how = f"{refusals} refused"


def changed_pictures(ward: Ward, tally: Tally, count: int) -> None:
    """Pictures are gone, other ones, damaged, mended or more when a run is resumed: refused until all is as it was."""
    for number in range(count):
        with tally.trial():
            patient = ward.patient(whole=ward.whole_of_pictures())
            patient.stopped_at(ward.rng.randint(1, STEPS - 5))
            source = patient.whole.source
            kept = source.with_name("kept")
            shutil.copytree(source, kept)
            try:
                # Not the last one: with another name it would keep its place, and the images would be the same.
                CHANGES[number % len(CHANGES)](source, source / f"{ward.rng.randrange(IMAGES - 1):03d}.png")
                refused(patient, source.name)
            finally:
                shutil.rmtree(source, ignore_errors=True)
                kept.rename(source)
            patient.recover()


def _repaint(source: Path, picture: Path) -> None:
    pixels = np.asarray(Image.open(picture)).copy()
    pixels[0, 0] ^= 1
    Image.fromarray(pixels).save(picture)


def _all_but_one_gone(source: Path, picture: Path) -> None:
    for path in source.iterdir():
        if path != picture:
            path.unlink()


CHANGES: list[Callable[[Path, Path], object]] = [
    lambda source, picture: picture.unlink(),
    _repaint,
    lambda source, picture: picture.write_bytes(picture.read_bytes()[:40]),
    lambda source, picture: shutil.copy(picture, source / "new.png"),
    lambda source, picture: shutil.copy(picture, source / "broken.png"),
    lambda source, picture: picture.rename(source / "zzz.png"),
    lambda source, picture: shutil.rmtree(source),
    _all_but_one_gone,
]
