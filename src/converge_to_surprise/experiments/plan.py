"""Which runs a table or figure needs, and which of them exist already."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..config import Config, Stage, presets
from ..config.describe import leaves
from ..config.files import overlay
from ..data import datasets
from ..data.datasets import Dataset
from ..runs.folder import RunFolder

LARGE = ("mnist", "fashion-mnist")
"""Data sets on which an ablation, with up to nine variants of every seed, is run only if it is asked for."""
SPEED_ONLY = ("threads", "device", "checkpoint_seconds", "evolution.chunk_size")
"""Settings that change how fast a run is, not what it computes."""
ONE_INIT: dict[str, Any] = {"n_init": 1}
"""The setting of an ablation: without a selection among initializations the effect of a part is easier to see."""
MOST_SEEDS = 1000

State = Literal["missing", "interrupted", "finished"]


class Variant(NamedTuple):
    """A change to the resolved configuration, and its name in tables: the full method, or without one of its parts.

    A variant that changes nothing does not apply: images that are never zoomed out have no run "without zoom-out".
    """

    title: str
    change: Callable[[Config], Config]


def _with(config: Config, section: str, **changes: Any) -> Config:
    return replace(config, **{section: replace(getattr(config, section), **changes)})


def _has(config: Config, kind: str) -> bool:
    return any(stage.kind == kind for stage in config.schedule)


def _relaxed(config: Config, **changes: Any) -> Config:
    return _with(config, "relaxed", **changes) if _has(config, "relaxed") else config


def _without_augmentation(config: Config) -> Config:
    # The wider augmentation of merging is augmentation too.
    config = _with(config, "merge", rotation=0.0, crop=0.0) if _has(config, "merge") else config
    off = dict.fromkeys(("rotation", "zoom_out_prob", "flip_prob", "brightness", "contrast", "saturation"), 0.0)
    return _with(config, "augmentation", crop=0, zoom_out=(0, 0), **off)


def _without_consolidation(config: Config) -> Config:
    kept = [stage for stage in config.schedule if stage.kind not in ("consolidate", "refine")]
    return replace(config, schedule=tuple(replace(stage, passes=0, every=0) for stage in kept))


def _without_graph(config: Config) -> Config:
    """All heads start from random directions; the steps of the graph stages go to the search."""
    stages = tuple(replace(stage, kind="relaxed" if stage.kind == "graph" else stage.kind) for stage in config.schedule)
    return replace(config, schedule=stages)


def _without_merging(config: Config) -> Config:
    """Keep the merge stage, which chooses one head, but cut the tree where all clusters of that head remain."""
    finest = replace(_with(config, "merge", min_cluster_fraction=0.0), n_clusters=config.max_clusters)
    return finest if _has(config, "merge") else config


FULL = "full"
VARIANTS = {
    FULL: Variant("full method", lambda config: config),
    "without-augmentation": Variant("without augmentation", _without_augmentation),
    "without-consolidation": Variant("without consolidation", _without_consolidation),
    "without-zoom-out": Variant(
        "without anisotropic zoom-out",
        lambda config: _with(config, "augmentation", zoom_out=(0, 0), zoom_out_prob=0.0),
    ),
    "without-filling": Variant("without filling", lambda config: _with(config, "views", fill_masked=False)),
    "without-merging": Variant("without merging (all clusters of one head)", _without_merging),
    "without-neighbors": Variant("without neighbors", lambda config: _relaxed(config, neighbor_prob=0.0)),
    "one-head": Variant("one head", lambda config: _relaxed(config, heads=1)),
    "without-graph": Variant("without the neighbor graph (random directions)", _without_graph),
    "without-calibration": Variant("without calibration", lambda config: _relaxed(config, calibrate=False)),
}


def differences(base: Config, wanted: Config) -> dict[str, tuple[Any, Any]]:
    """The settings in which two configurations differ: the dotted name, the value in each."""
    before, after = ({name: value for name, value, _ in leaves(settings)} for settings in (base, wanted))
    return {name: (before[name], after[name]) for name in after if before[name] != after[name]}


def flags(base: Config, wanted: Config) -> list[str]:
    """The flags of ``cts fit`` that turn one configuration into another.

    >>> flags(Config(), replace(Config(), seed=3))
    ['--seed', '3']
    """
    words: list[str] = []
    for name, (_, value) in differences(base, wanted).items():
        section, dot, field = name.replace("_", "-").rpartition(".")
        values = value if isinstance(value, tuple) else (value,)
        if isinstance(value, bool):
            words.append(f"--{section}{dot}{field}" if value else f"--{section}{dot}no-{field}")
        else:
            words += [f"--{section}{dot}{field}"]
            words += [str(item) if isinstance(item, (Stage, str)) else repr(item) for item in values]
    return words


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
        wanted = self.config
        if wanted.precision == "auto":  # a run holds what its CPU made of it
            wanted = replace(wanted, precision=found.config.precision)
        different = {k: v for k, v in differences(found.config, wanted).items() if k not in SPEED_ONLY}
        texts = [f"{name} is {_text(there)}, not {_text(here)}" for name, (there, here) in different.items()]
        return "; ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")

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
            full = replace(presets.keep_bound(overlay(preset, recipe.overlay), preset), seed=seed)
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
