"""The full method and what remains of it when a part is taken away.

A variant is a change to the resolved configuration. One that changes nothing does not apply: a data set whose images
are never zoomed out has no run "without zoom-out".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from ..config import Config, Stage


class Variant(NamedTuple):
    """A change to the configuration, and whose idea the ablation is."""

    title: str
    change: Callable[[Config], Config]
    papers: bool = False
    note: str = ""


def _searches(config: Config, kind: str) -> bool:
    return any(stage.kind == kind for stage in config.schedule)


def _without_augmentation(config: Config) -> Config:
    plain = replace(
        config.augmentation,
        rotation=0.0, crop=0, zoom_out=(0, 0), zoom_out_prob=0.0, flip_prob=0.0,
        brightness=0.0, contrast=0.0, saturation=0.0,
    )  # fmt: skip
    changed = replace(config, augmentation=plain)
    # The wider augmentation of merging is augmentation too.
    return replace(changed, merge=replace(config.merge, rotation=0.0, crop=0.0)) if _merges(config) else changed


def _without_consolidation(config: Config) -> Config:
    kinds = ("consolidate", "refine")
    kept = tuple(replace(stage, passes=0, every=0) for stage in config.schedule if stage.kind not in kinds)
    return replace(config, schedule=kept)


def _without_zoom_out(config: Config) -> Config:
    return replace(config, augmentation=replace(config.augmentation, zoom_out=(0, 0), zoom_out_prob=0.0))


def _without_filling(config: Config) -> Config:
    return replace(config, views=replace(config.views, fill=False))


def _merges(config: Config) -> bool:
    return _searches(config, "merge")


def _without_merging(config: Config) -> Config:
    """Keep the merge stage, which chooses one head, but cut where all its clusters are left."""
    finest = replace(config.merge, clusters=config.max_clusters, smallest=0.0)
    return replace(config, merge=finest) if _merges(config) else config


def _one_head(config: Config) -> Config:
    return replace(config, relaxed=replace(config.relaxed, heads=1)) if _searches(config, "relaxed") else config


def _without_calibration(config: Config) -> Config:
    starts = config.schedule[0].kind == "relaxed"
    return replace(config, relaxed=replace(config.relaxed, calibrate=False)) if starts else config


def _without_neighbors(config: Config) -> Config:
    without = replace(config.relaxed, neighbor_share=0.0)
    return replace(config, relaxed=without) if _searches(config, "relaxed") else config


FULL = "full"
VARIANTS: dict[str, Variant] = {
    FULL: Variant("full method", lambda config: config, papers=True),
    "without-augmentation": Variant("without augmentation", _without_augmentation, papers=True),
    "without-consolidation": Variant("without consolidation", _without_consolidation, papers=True),
    "without-zoom-out": Variant("without anisotropic zoom-out", _without_zoom_out, papers=True),
    "without-filling": Variant("without filling", _without_filling),
    "without-merging": Variant(
        "without merging",
        _without_merging,
        note="without merging: the head with the most clusters is kept with all of them",
    ),
    "without-neighbors": Variant("without neighbors", _without_neighbors),
    "one-head": Variant("one head", _one_head),
    "without-calibration": Variant("without calibration", _without_calibration),
}


def leaves(settings: Any, where: str = "") -> dict[str, Any]:
    """Every setting by its dotted name.

    >>> leaves(Config())["views.fill"]
    False
    """
    found: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value, name = getattr(settings, field.name), f"{where}{field.name}"
        found |= leaves(value, f"{name}.") if dataclasses.is_dataclass(value) else {name: value}
    return found


def differences(base: Config, wanted: Config) -> dict[str, tuple[Any, Any]]:
    """The settings in which two configurations differ: name, the first's value, the second's."""
    before, after = leaves(base), leaves(wanted)
    return {name: (before[name], after[name]) for name in after if before[name] != after[name]}


def flags(base: Config, wanted: Config) -> list[str]:
    """The words of ``cts fit`` that turn one configuration into another.

    >>> flags(Config(), _without_filling(replace(Config(), seed=3)))
    ['--seed', '3']
    """
    words: list[str] = []
    for name, (_, value) in differences(base, wanted).items():
        section, _, field = name.replace("_", "-").rpartition(".")
        prefix = f"--{section}." if section else "--"
        if isinstance(value, bool):
            words.append(f"{prefix}{field}" if value else f"{prefix}no-{field}")
        else:
            values = value if isinstance(value, tuple) else (value,)
            words += [
                f"{prefix}{field}",
                *(str(item) if isinstance(item, (Stage, str)) else repr(item) for item in values),
            ]
    return words
