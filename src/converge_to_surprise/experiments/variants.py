"""The ablation variants: the full method, and the method without one of its parts.

A variant is a change to the resolved configuration. A variant that changes nothing does not apply: a data set whose
images are never zoomed out has no run "without zoom-out".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from ..config import Config, Stage
from ..config.describe import leaves


class Variant(NamedTuple):
    """A change to the configuration, and its name in tables."""

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
