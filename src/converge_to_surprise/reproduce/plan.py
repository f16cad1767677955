"""Which runs a table or figure needs, and which of them are there already."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ..config import Config, presets
from ..config import files as configfile
from ..core.rng import start_seeds
from ..data import datasets
from ..data.datasets import Dataset
from ..data.store import fingerprint
from ..runs.folder import Description, RunFolder
from .variants import FULL, VARIANTS, differences, flags

Target = Literal["table1", "table2", "ablation", "curves"]
ALL_SETS = ("mnist", "fashion-mnist", "usps", "digits")
SETS: dict[Target, tuple[str, ...]] = {
    "table1": ALL_SETS,
    "table2": ALL_SETS,
    "ablation": ("usps", "digits"),  # eight variants each: the large sets only if asked for
    "curves": ALL_SETS,
}
State = Literal["missing", "interrupted", "finished"]
INDIFFERENT = ("threads", "device", "checkpoint_seconds", "evolution.chunk")
"""Settings that change how fast a run is, not what it is."""


TOLD = ("seed", "threads", "device")


def variants_of(target: Target) -> tuple[str, ...]:
    return tuple(VARIANTS) if target == "ablation" else (FULL,)


@dataclass(frozen=True)
class Job:
    """One run: a data set, a variant of the method, a seed. The starts of a run are runs of their own here."""

    dataset: str
    variant: str
    seed: int
    folder: Path
    config: Config
    """The configuration that the run must have."""
    fit: list[str]
    """The words after ``cts fit`` that make it, except for folders, threads and device."""

    @property
    def name(self) -> str:
        return job_name(self.dataset, self.variant, self.seed)

    @property
    def state(self) -> State:
        run = RunFolder(self.folder)
        if not run.config.is_file():
            return "missing"
        return "finished" if run.result.is_file() else "interrupted"


@dataclass(frozen=True)
class Recipe:
    """What all runs of a table share: the preset and a file of settings laid over it."""

    preset: presets.PresetName
    overlay: dict[str, object]

    def config(self, dataset: str, images: int, shape: tuple[int, int, int], variant: str, seed: int) -> Config | None:
        """The configuration of a run on ``images`` images of ``shape``, with as many starts as it would have by itself;
        None where the variant does not apply.
        """
        full = configfile.overlay(self._base(dataset, images, shape), self.overlay)
        changed = VARIANTS[variant].change(full)
        return None if variant != FULL and changed == full else replace(changed, seed=seed)

    def words(self, dataset: str, images: int, shape: tuple[int, int, int], wanted: Config) -> list[str]:
        """The words of ``cts fit`` that lead to a configuration, without any file of settings."""
        # Seed, threads and device are told on their own.
        own = replace(self._base(dataset, images, shape), **{name: getattr(wanted, name) for name in TOLD})
        changes = flags(own, wanted)
        return [dataset, "--preset", self.preset, "--seed", str(wanted.seed), *changes]

    def _base(self, dataset: str, images: int, shape: tuple[int, int, int]) -> Config:
        return presets.resolve(self.preset, None, dataset, images, shape)


def job_name(dataset: str, variant: str, seed: int) -> str:
    return f"{dataset}-{variant}-{seed}"


def parse_name(name: str) -> tuple[str, str, int] | None:
    """Data set, variant and seed of a run's name, or None.

    >>> parse_name("fashion-mnist-without-zoom-out-12")
    ('fashion-mnist', 'without-zoom-out', 12)
    """
    pattern = f"({'|'.join(datasets.NAMED)})-({'|'.join(VARIANTS)})-([0-9]+)"
    found = re.fullmatch(pattern, name)
    return None if found is None else (found[1], found[2], int(found[3]))


def parse_seeds(text: str) -> list[int]:
    """A number of seeds, a range or a list.

    >>> parse_seeds("3"), parse_seeds("5-7"), parse_seeds("0,8")
    ([0, 1, 2], [5, 6, 7], [0, 8])
    """
    if re.fullmatch(r"[0-9]+", text) and 1 <= int(text) <= 1000:
        return list(range(int(text)))
    if (ends := re.fullmatch(r"([0-9]+)-([0-9]+)", text)) and 0 <= int(ends[2]) - int(ends[1]) < 1000:
        return list(range(int(ends[1]), int(ends[2]) + 1))
    if re.fullmatch(r"[0-9]+(,[0-9]+)*,?", text) and "," in text:
        return sorted({int(word) for word in text.strip(",").split(",")})
    raise ValueError(f"--seeds is {text!r}; give a number of seeds (5), a range (5-9) or a list (0,3,7)")


def parse_sets(names: Sequence[str], target: Target) -> list[str]:
    """The data sets asked for, or those that the target has by default."""
    found = []
    for name in names or SETS[target]:
        known = datasets.canonical(name)
        if known is None:
            raise ValueError(f"--dataset is {name!r}; known data sets: {', '.join(datasets.NAMED)}")
        found.append(known)
    return list(dict.fromkeys(found))


def shape_of(dataset: Dataset) -> tuple[int, int, int]:
    channels, height, width = dataset.train.images.shape[1:]
    return channels, height, width


def plan(out: Path, target: Target, recipe: Recipe, sets: dict[str, Dataset], seeds: Sequence[int]) -> list[Job]:
    """The runs of a target, first seeds first: a table that is interrupted has something in every cell.

    An ablation is one of single starts: what a part of the method is worth is seen better without a choice.
    """
    jobs: dict[str, Job] = {}
    for seed in seeds:
        for name, dataset in sets.items():
            images, shape = len(dataset.train), shape_of(dataset)
            for variant in variants_of(target):
                config = recipe.config(name, images, shape, variant, seed)
                if config is None:
                    continue
                for own_seed in start_seeds(seed, 1 if target == "ablation" else config.starts):
                    own = replace(config, seed=own_seed, starts=1)
                    folder = out / "runs" / job_name(name, variant, own.seed)
                    job = Job(name, variant, own.seed, folder, own, recipe.words(name, images, shape, own))
                    if job.name in jobs:
                        raise ValueError(
                            f"--seeds: two of them have the run of seed {own.seed} as a start; leave one out"
                        )
                    jobs[job.name] = job
    return list(jobs.values())


def fit_command(words: Sequence[str], threads: int) -> str:
    """The command that makes a run."""
    return shlex.join(["cts", "fit", *words, "--threads", str(threads), "--out", "RUN"])


def mismatch(description: Description, wanted: Config) -> str:
    """In what a run differs from the one that is wanted; empty if it is the same."""
    found = differences(description.config, wanted)
    told = [f"{name} is {_said(there)}, wanted {_said(here)}" for name, (there, here) in found.items()
            if name not in INDIFFERENT]  # fmt: skip
    more = f" and {len(told) - 3} more" if len(told) > 3 else ""
    return "; ".join(told[:3]) + more


def _said(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def foreign(jobs: Iterable[Job], sets: dict[str, Dataset]) -> list[tuple[str, str]]:
    """Runs in the way, and why: they have a wanted run's name, but other settings or other images."""
    prints = {name: fingerprint(dataset.train.images) for name, dataset in sets.items()}
    found = []
    for job in jobs:
        if job.state != "missing":
            try:
                description = RunFolder.open(job.folder).description()
            except ValueError as error:  # damaged, or from a version with other settings
                found.append((job.name, str(error)))
                continue
            why = mismatch(description, job.config)
            if description.fingerprint != prints[job.dataset]:
                why = f"it has other images than {job.dataset} has now"
            if why:
                found.append((job.name, why))
    return found
