"""What follows from the kind of picture: which changes carry no meaning, and what the search looks at.

A kind is chosen from the pictures alone (``core/picture_kind.py``) or by the user, and never by the data set.
"""

from __future__ import annotations

from dataclasses import replace

from .settings import Config, PictureKind

DESCRIPTIONS: dict[PictureKind, str] = {
    "glyph": "gray objects on a plain background",
    "gray": "gray pictures",
    "object": "colored objects on an uncluttered background: clustered by their edges, not by light and color",
    "scene": "photographs full of detail",
}


def describe_kind(kind: PictureKind, name: str) -> str:
    """One line that says what was seen. ``name``: the user's name of the setting for another kind."""
    return f"kind of pictures: {kind} ({DESCRIPTIONS[kind]}); {name} sets another"


def for_kind(config: Config, kind: PictureKind) -> Config:
    """The configuration of the fast preset for pictures of this kind, whose pixels are searched."""
    config = replace(config, kind=kind)
    if kind == "glyph":
        return config
    if kind == "gray":
        return _whole_pictures(config)
    return _outlines(config) if kind == "object" else _scenes(config)


def _whole_pictures(config: Config) -> Config:
    """What lies at the rim belongs to the picture: it is kept and continued beyond the edge."""
    return replace(
        config,
        views=replace(config.views, background="keep"),
        network=replace(config.network, padding="background"),
        augmentation=replace(config.augmentation, fill="background"),
    )


def _outlines(config: Config) -> Config:
    """Edges are bright on black, so that nothing has to be removed or continued beyond the edge of the picture."""
    return replace(
        config,
        views=replace(config.views, edges=True, background="keep"),
        network=replace(config.network, padding="black"),
        augmentation=replace(config.augmentation, fill="image", saturation=0.0),
    )


def _scenes(config: Config) -> Config:
    augmentation = replace(
        config.augmentation, flip_prob=0.5, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, gray_prob=0.2
    )
    # What is near such a picture may show something else, so that few splits would hold.
    return replace(config, augmentation=augmentation, merge=replace(config.merge, number_by="either"))
