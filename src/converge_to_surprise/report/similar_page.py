"""A small page: pictures, and the training images of a run that are most similar to each."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..runs.folder import RunFolder
from ..runs.similar import SimilarImages, TrainingImages
from .image_data import printable
from .page import render
from .sprites import SIDES, encode, native_form
from .summary import counted


def render_similar(run: RunFolder, known: TrainingImages, found: Sequence[SimilarImages], images: Tensor) -> str:
    """The page. ``images``: the run's training images, uint8 (N, C, H, W)"""
    rows = [
        {
            "picture": printable(one.picture),
            "thumbnail": _thumbnail(one.pixels),
            "matches": [
                {
                    "name": printable(match.name if known.are_files else f"image {match.name}"),
                    "thumbnail": _thumbnail(images[match.image]),
                    "cluster": printable(_cluster(known, match.cluster)),
                    "distance": f"{match.distance:.3f}",
                }
                for match in one.matches
            ],
        }
        for one in found
    ]
    name = printable(run.path.resolve().name)
    title = f"Images of {name} similar to {counted(len(found), 'picture')}"
    small = max(images.shape[2:]) <= SIDES[0] // 2
    return render("similar", {"title": title, "run": name, "images": len(images), "rows": rows, "pixels": small})


def _cluster(known: TrainingImages, number: int) -> str:
    name = known.cluster_name(number)
    return f"Cluster {name}" if name[:1].isdigit() else name


def _thumbnail(image: Tensor) -> str:
    """A picture (C, H, W) as WebP in base64."""
    batch = image[None]
    return encode(batch, native_form(batch))[0]
