"""Checkpoints that rot: cut short, or with a bit flipped, in every region of both of their files."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from converge_to_surprise.runs import checkpoint

from .harness import STEPS, Patient, Whole, demand
from .places import refused
from .ward import Tally, Ward

SHARES = (0.0, 0.002, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.9999)
"""Where files are cut and flipped, as shares of their length."""


def cut(path: Path, share: float) -> None:
    """Keep so much of a file."""
    os.truncate(path, int(share * path.stat().st_size))


def flip(path: Path, position: int, bit: int) -> None:
    """Change one bit of the byte at this position."""
    content = bytearray(path.read_bytes())
    content[min(position, len(content) - 1)] ^= 1 << bit
    path.write_bytes(content)


def regions(path: Path) -> Iterator[tuple[str, int, int]]:
    """Every part of a checkpoint's file by name, with its first byte and the one after its last.

    Of the JSON part every field; of the tensors the length of the header, what it says of each tensor, and each tensor.
    """
    content = path.read_bytes()
    if path.suffix == ".json":
        fields = [0, *(found.start() for found in re.finditer(rb'^ +"', content, re.MULTILINE)), len(content)]
        yield from ((content[first:last][:20].decode(), first, last) for first, last in itertools.pairwise(fields))
        return
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    yield "length of the header", 0, 8
    for name, about in header.items():
        said = content.index(json.dumps(name).encode(), 8)
        yield f"header of {name}", said, content.index(b"}", said) + 1
        if name != "__metadata__":
            first, last = (8 + length + offset for offset in about["data_offsets"])
            yield name, first, last


def rotten_checkpoint(ward: Ward, tally: Tally, count: int) -> None:
    """A bit of every region, so many times each: a reader of the run gets the previous checkpoint, with a warning."""
    for whole in _one_of_each_search(ward):
        patient = ward.patient(whole=whole)
        patient.stopped_at(STEPS * 2 // 3)
        identity = patient.run.description().identity
        for ending in ("json", "safetensors"):
            target = _newest(patient, ending)
            content = target.read_bytes()
            for name, first, last in regions(target):
                for _ in range(count):
                    with tally.trial():
                        flip(target, ward.rng.randrange(first, last), ward.rng.randrange(8))
                        found, problems = checkpoint.load_newest(patient.run.checkpoints, identity)
                        demand(found is not None and found.data["step"] < patient.acknowledged, f"{name} was believed")
                        demand(len(problems) == 1 and target.stem in problems[0], f"{name}: {problems}")
                    target.write_bytes(content)


def damaged_checkpoint(ward: Ward, tally: Tally, count: int) -> None:
    """Cuts and single flipped bits all over both parts of the newest checkpoint: resumed from the one before."""
    for number, whole in enumerate(_one_of_each_search(ward)):
        patient = ward.patient(whole=whole)
        patient.stopped_at(STEPS * (3 + number) // 8)
        trials = [(ending, kind, share) for ending in ("json", "safetensors") for kind in "cf" for share in SHARES]
        for ending, kind, share in trials if count >= len(trials) else ward.rng.sample(trials, count):
            with tally.trial():
                copy = ward.patient(like=patient)
                target = _newest(copy, ending)
                if kind == "c":
                    cut(target, share)
                else:
                    flip(target, int(share * target.stat().st_size), ward.rng.randrange(8))
                said = copy.recover().replace("\n", " ")
                demand("using the previous checkpoint" in said, f"{kind}{share} of {ending} went unnoticed: {said}")
                demand(target.stem in said, f"which checkpoint? {said}")
                shutil.rmtree(copy.folder)
        with tally.trial():
            _both_damaged(ward.patient(like=patient))


def _both_damaged(patient: Patient) -> None:
    """There is nothing to fall back to."""
    for path in patient.run.checkpoints.glob("*.safetensors"):
        flip(path, path.stat().st_size // 2, 3)
    refused(patient, "no checkpoint can be used")


def _newest(patient: Patient, ending: str) -> Path:
    return patient.run.checkpoints / f"step-{patient.acknowledged:09d}.{ending}"


def _one_of_each_search(ward: Ward) -> list[Whole]:
    """Checkpoints are the same whatever the images come from."""
    return list({tuple(whole.flags): whole for whole in ward.wholes if whole.source.is_file()}.values())[:2]
