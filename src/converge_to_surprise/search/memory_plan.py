"""An estimate of the memory that a fit takes, checked before it begins.

Beside the images these are the data of one step at a time: a batch with all activations that its gradient needs, the
views that merging and labeling process at once, or the pixels of the images whose neighbors are searched. The largest
of them counts, because none is held while another is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from ..config import Config
from ..config.memory import free_memory
from ..config.stage import EVOLVING
from ..model import devices, inference
from ..model.backbone import build_network
from ..model.network import ResNet9, Unit, pooled_size
from . import chunking, neighbors, schedule, stacked
from .relaxed import CALIBRATION_BATCH
from .threads import available_threads

VIEW = 6
"""Copies of a view while it is made and augmented, and two coordinates for each of its pixels."""
PIXELS = 3
"""Copies of the pixels of an image while it is compared with others."""
WORKSPACE = 2**27
"""Bytes that libraries take whatever the images: buffers of convolutions, freed blocks that they keep."""
FLOAT_BYTES = 4


class PerView(NamedTuple):
    """Numbers that the network computes from one view."""

    passing: int
    """Input and output of its largest layer, which is all that is held without a gradient."""
    kept: int
    """The activations of all layers, which a gradient needs."""


def per_view(channels: int, size: Sequence[int], config: Config) -> PerView:
    """The numbers of the network for one view (C, H, W)."""
    if pixels := config.network.pixels:
        hidden = config.network.hidden
        return PerView(pixels + 2 * hidden, pixels + 4 * hidden)
    with torch.device("meta"):  # only its shapes are needed
        network = build_network(channels, config, config.max_clusters, heads=1)
    assert isinstance(network, ResNet9)
    channels = network.channels
    if network.space_to_depth:
        channels, size = 4 * channels, [-(-side // 2) for side in size]
    passing = kept = channels * math.prod(size)
    for unit in network.units:
        assert isinstance(unit, Unit)
        before, outputs = channels * math.prod(size), unit.conv.out_channels
        wide = outputs * math.prod(size)  # once convolved and once normalized
        size = pooled_size(size) if unit.pool else size
        # Pooling stores the position of each maximum, in twice the bytes of the maximum.
        kept += 2 * wide + (3 * outputs * math.prod(size) if unit.pool else 0)
        passing = max(passing, before + 2 * wide)
        channels = outputs
    return PerView(passing, kept)


def estimate(images: Sequence[int], config: Config, own_network: bool = True) -> int:
    """Bytes that a fit on uint8 images of shape (N, C, H, W) takes beside them, to within a factor of two.

    Of the user's own backbone only the views are counted, and nothing that a GPU holds.
    """
    count, channels, height, width = images
    compared = min(count, 2 * neighbors.SAMPLE) * channels * height * width * PIXELS
    if torch.device(devices.resolve(config.device)).type != "cpu":
        return WORKSPACE + FLOAT_BYTES * compared
    size = height * config.views.upsample, width * config.views.upsample
    view = (VIEW * channels + 2) * math.prod(size)
    passing, kept = per_view(channels, size, config) if own_network else (0, 0)
    threads = config.threads or available_threads()
    labeled = _labeled(config, count, threads) * (view + 4 * channels * math.prod(size) + passing)
    trained = 2 * _trained(config, count) * (view + kept + passing)
    evolved = 0
    if own_network and any(stage.kind in EVOLVING for stage in config.schedule):
        evolved = _evolved((min(count, config.evolution.batch_size), channels, *size), config, threads)
    return WORKSPACE + max(evolved, FLOAT_BYTES * max(compared, labeled, trained))


def _labeled(config: Config, count: int, threads: int) -> int:
    """Largest number of views processed at once without a gradient."""
    kinds = {stage.kind for stage in config.schedule}
    calibrated = min(CALIBRATION_BATCH, count) * ("relaxed" in kinds)
    return max(calibrated, threads * min(inference.CHUNK, max(inference.MIN_BATCH, count)))


def _trained(config: Config, count: int) -> int:
    """Images of the largest batch with a gradient."""
    kinds = {stage.kind for stage in config.schedule}
    consolidated = "consolidate" in kinds or any(stage.every for stage in config.schedule)
    batches = [
        *[config.relaxed.batch_size] * bool(kinds & {"relaxed", "refine"}),
        *[config.consolidation.batch_size] * consolidated,
        *[config.guided.batch_size] * ("guided" in kinds),
    ]
    return min(count, max(batches, default=0))


def _evolved(views: tuple[int, int, int, int], config: Config, threads: int) -> int:
    """Bytes in which the members of a population are scored, as many at the same time as there are threads."""
    with torch.device("meta"):
        network = build_network(views[1], config, config.max_clusters, heads=1)
    if not isinstance(network, ResNet9):
        layer = max(stacked.CACHED, views[0] * max(config.network.hidden, config.max_clusters))
        return FLOAT_BYTES * (2 * math.prod(views) + threads * 4 * layer)
    return threads * chunking.bytes_needed(config.evolution.chunk_size or chunking.IN_CACHE, views, network)


def check_fit_memory(
    images: Sequence[int],
    config: Config,
    own_network: bool = True,
    names: tuple[str, str] = ("image_size", "settings "),
) -> None:
    """Refuse a fit on images of shape (N, C, H, W) that does not fit into memory, and name settings that would.

    ``names``: the user's name of the image size, and the prefix of other settings.
    """
    devices.check(config.device)
    free = free_memory()

    def fits(shape: Sequence[int], settings: Config) -> bool:
        return estimate(shape, settings, own_network) <= free

    if fits(images, config):
        return
    count, channels, height, width = images
    need = estimate(images, config, own_network)
    sides = (side for side in _sides(height, width) if fits((count, channels, *side), config))
    batches = (f"{name} {size}" for name, size, smaller in _batches(config) if fits(images, smaller))
    ways = [f"{names[0]} {max(side)}" for side in itertools.islice(sides, 1)]
    ways += [names[1] + batch for batch in itertools.islice(batches, 1)]
    raise ValueError(
        f"{count:,} images of {height}x{width} pixels need about {need / 1e9:.1f} GB of memory, "
        f"but {free / 1e9:.1f} GB are free; give {' or '.join(ways) or 'smaller images'}"
    )


def _sides(height: int, width: int) -> Iterator[tuple[int, int]]:
    """Smaller (H, W) of the same aspect, the largest first; the longer side is a multiple of 8, as it may be small."""
    longer = max(height, width)
    for side in range((longer - 1) // 8 * 8, 0, -8):
        yield max(1, round(height * side / longer)), max(1, round(width * side / longer))


def _batches(config: Config) -> Iterator[tuple[str, int, Config]]:
    """Smaller batches of the search, the largest first: the name of the setting, its value, and the configuration."""
    name = "evolution" if any(stage.kind in EVOLVING for stage in config.schedule) else "relaxed"
    whole = schedule.batch_sizes(config)[name]
    for size in (whole >> halvings for halvings in range(1, whole.bit_length() - 1)):
        changed = replace(getattr(config, name), batch_size=size)
        yield f"{name}.batch_size", size, replace(config, **{name: changed})
