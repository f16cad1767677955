"""Which runs a table or figure needs, and which of them exist already."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ..config import Config, presets
from ..config.files import overlay
from ..data import datasets
from ..data.datasets import Dataset
from ..runs.folder import RunFolder
from .variants import FULL, VARIANTS, differences, flags

LARGE = ("mnist", "fashion-mnist")
"""Data sets on which an ablation, with up to nine variants of every seed, is run only if it is asked for."""
SPEED_ONLY = ("threads", "device", "checkpoint_seconds", "evolution.chunk_size")
"""Settings that change how fast a run is, not what it computes."""
ONE_INIT: dict[str, Any] = {"n_init": 1}
"""The setting of an ablation: without a selection among initializations the effect of a part is easier to see."""
MOST_SEEDS = 1000

State = Literal["missing", "interrupted", "finished"]


@dataclass(frozen=True)
class Recipe:
    """What all runs of a table share: the preset and the settings of a file applied on top of it."""

    preset: presets.PresetName
    overlay: dict[str, object]


@dataclass(frozen=True)
class PlannedRun:
    """One run: a data set, a variant of the method, a seed."""

    dataset: str
    variant: str
    seed: int
    folder: Path
    config: Config
    """The configuration that the run must have."""
    arguments: list[str]
    """The arguments of ``cts fit`` that give this configuration, except for folders, threads and device."""

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def state(self) -> State:
        run = RunFolder(self.folder)
        if not run.config.is_file():
            return "missing"
        return "finished" if run.result.is_file() else "interrupted"

    def mismatch(self, fingerprint: str) -> str:
        """How the run in the folder differs from this one; empty if it does not, or if there is none.

        ``fingerprint`` identifies the images that the run must have been trained on.
        """
        if self.state == "missing":
            return ""
        try:
            found = RunFolder.open(self.folder).description()
        except ValueError as error:  # damaged, or written by a version with other settings
            return str(error)
        if found.fingerprint != fingerprint:
            return f"its images are not those of {self.dataset}"
        different = {k: v for k, v in differences(found.config, self.config).items() if k not in SPEED_ONLY}
        told = [f"{name} is {_text(there)}, not {_text(here)}" for name, (there, here) in different.items()]
        return "; ".join(told[:3]) + (f" and {len(told) - 3} more" if len(told) > 3 else "")

    def command(self, threads: int) -> str:
        """The command that repeats the run."""
        return shlex.join(["cts", "fit", *self.arguments, "--threads", str(threads), "--out", "RUN"])


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def parse_seeds(text: str) -> list[int]:
    """A number of seeds, a range or a list.

    >>> parse_seeds("3"), parse_seeds("5-7"), parse_seeds("0,8")
    ([0, 1, 2], [5, 6, 7], [0, 8])
    """
    if re.fullmatch(r"[0-9]+", text) and 1 <= int(text) <= MOST_SEEDS:
        return list(range(int(text)))
    if (ends := re.fullmatch(r"([0-9]+)-([0-9]+)", text)) and 0 <= int(ends[2]) - int(ends[1]) < MOST_SEEDS:
        return list(range(int(ends[1]), int(ends[2]) + 1))
    if re.fullmatch(r"[0-9]+(,[0-9]+)*,?", text) and "," in text:
        return sorted({int(word) for word in text.strip(",").split(",")})
    raise ValueError(f"--seeds is {text!r}; give a number of seeds (5), a range (5-9) or a list (0,3,7)")


def parse_datasets(names: Sequence[str], ablation: bool) -> list[str]:
    """The data sets asked for, or the default ones."""
    found = []
    for name in names or [name for name in datasets.NAMED if not (ablation and name in LARGE)]:
        known = presets.canonical(name)
        if known is None:
            raise ValueError(f"--dataset is {name!r}; known data sets: {', '.join(datasets.NAMED)}")
        found.append(known)
    return list(dict.fromkeys(found))


def plan(out: Path, recipe: Recipe, sets: dict[str, Dataset], seeds: Sequence[int], ablation: bool) -> list[PlannedRun]:
    """The runs of a target, first seeds first, so that an interrupted table has something in every cell."""
    runs = []
    for seed in seeds:
        for name, dataset in sets.items():
            channels, height, width = dataset.train.images.shape[1:]
            preset = presets.resolve(recipe.preset, None, name, len(dataset.train), (channels, height, width))
            full = replace(overlay(preset, recipe.overlay), seed=seed)
            for variant in VARIANTS if ablation else (FULL,):
                changed = VARIANTS[variant].change(full)
                if variant != FULL and changed == full:
                    continue
                config = replace(changed, **ONE_INIT) if ablation else changed
                # A run of an ablation is another one than that of a table, unless both have one initialization.
                folder = f"{name}-{variant}-{'one-init-' if config != changed else ''}{seed}"
                base = replace(preset, seed=seed, threads=config.threads, device=config.device)
                arguments = [name, "--preset", recipe.preset, "--seed", str(seed), *flags(base, config)]
                runs.append(PlannedRun(name, variant, seed, out / "runs" / folder, config, arguments))
    return runs
