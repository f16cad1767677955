"""Settings, checked when they are built."""

from .checks import SettingError, check
from .settings import (
    Augmentation,
    Config,
    Consolidation,
    Evolution,
    Guided,
    Merge,
    Network,
    PictureKind,
    Precision,
    Relaxed,
    SearchName,
    Views,
    check_n_clusters,
)
from .stage import Stage, StageKind

__all__ = [
    "Augmentation",
    "Config",
    "Consolidation",
    "Evolution",
    "Guided",
    "Merge",
    "Network",
    "PictureKind",
    "Precision",
    "Relaxed",
    "SearchName",
    "SettingError",
    "Stage",
    "StageKind",
    "Views",
    "check",
    "check_n_clusters",
]
