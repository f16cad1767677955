"""How many views pass through a layer at once, and other settings that depend on the hardware.

On a CPU a chunk should fit its cache; a GPU is fastest with as much as its memory holds. How sums are rounded depends
on the chunk, so it follows from the size of that memory, not from what other programs leave of it at the moment. The
members of a population are scored one after another and layer by layer, so that the paper's batch of 3,000 images with
32 members needs less than a gigabyte.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..config import Config
from ..config.stage import EVOLVING
from ..model import devices, precision
from ..model.backbone import build_network
from ..model.network import ResNet9, Unit, pooled_size

IN_CACHE = 50
"""Views of 28x28 pixels whose float32 activations fit a CPU's cache."""
CACHED_PIXELS = IN_CACHE * 28 * 28
LEAST = 8
"""Views of any size that a CPU takes at once at least: smaller chunks cost more time per call than they save."""
USABLE = 0.5
"""Fraction of the memory that is used: convolutions need a workspace, and other programs use the device too."""
FLOAT_BYTES = 4


def resolve_hardware(config: Config, images: Tensor) -> Config:
    """The configuration with the device, the precision and the chunk size filled in.

    It is saved with the run, so that the run is continued in the same way.
    """
    devices.check(config.device)
    device = torch.device(devices.resolve(config.device))
    precision.check(config.precision, device)
    asked = config.precision
    if config.views.stored and asked == "auto":  # without convolutions 16 bits gain nothing
        asked = "float32"
    config = replace(config, device=str(device), precision=precision.resolve(asked, device))
    settings = config.evolution
    if not settings.chunk_size:
        settings = replace(settings, chunk_size=best_chunk_size(device, images.shape, config))
    return replace(config, evolution=settings)


def best_chunk_size(device: torch.device, images: Sequence[int], config: Config) -> int:
    """The chunk size of evolution for uint8 images of shape (N, C, H, W)."""
    if not config.network.convolutional:
        return IN_CACHE
    if device.type not in ("cuda", "mps"):
        pixels = math.prod(images[2:]) * config.views.upsample**2
        halved = config.precision in precision.SIXTEEN_BITS
        return max(LEAST, CACHED_PIXELS * (2 if halved else 1) // pixels)
    return largest_chunk(device_bytes(device)[1], *_scored(images, config))


def check_device_memory(config: Config, images: Sequence[int]) -> None:
    """Refuse evolution on a GPU that has too little free memory now. ``config`` is resolved."""
    device, chunk = torch.device(config.device), config.evolution.chunk_size
    if (
        device.type not in ("cuda", "mps")
        or not config.network.convolutional
        or not any(stage.kind in EVOLVING for stage in config.schedule)
    ):
        return
    scored = _scored(images, config)
    free, total = device_bytes(device)
    if (needed := bytes_needed(chunk, *scored)) > free:
        raise ValueError(
            f"{device} has {free:,} of {total:,} bytes free, and evolution would take {needed:,}; wait until other "
            f"programs have ended, or give evolution.chunk_size {largest_chunk(free, *scored)}"
        )


def _scored(images: Sequence[int], config: Config) -> tuple[tuple[int, int, int, int], ResNet9]:
    """The shape (N, C, H, W) of the views that are scored together, and an outline of the network that labels them."""
    count, channels, height, width = images
    scale = config.views.upsample
    with torch.device("meta"):  # only its shapes are needed
        network = build_network(channels, config, config.max_clusters, heads=1)
    assert isinstance(network, ResNet9)
    return (min(count, config.evolution.batch_size), network.channels, height * scale, width * scale), network


def device_bytes(device: torch.device) -> tuple[int, int]:
    """Free and total memory of a GPU."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)
    total = torch.mps.recommended_max_memory()
    return total - torch.mps.driver_allocated_memory(), total


def largest_chunk(size: int, views: tuple[int, int, int, int], network: ResNet9) -> int:
    """The largest chunk of views (N, C, H, W) that fits into ``size`` bytes: all, or a power of two of at least 1.

    Powers of two, so that a GPU of about the same size computes a run in the same way.
    """
    whole = views[0]
    candidates = [whole, *(2**exponent for exponent in range(whole.bit_length(), -1, -1) if 2**exponent < whole)]
    return next((chunk for chunk in candidates if bytes_needed(chunk, views, network) <= USABLE * size), 1)


def bytes_needed(chunk: int, views: tuple[int, int, int, int], network: ResNet9) -> int:
    """Memory to score a member: what is stored of the whole batch, and the temporaries of one chunk."""
    count, channels, *size = views
    if network.space_to_depth:
        channels, size = 4 * channels, [-(-side // 2) for side in size]
    held = {"views": 2 * math.prod(views), "input": count * channels * math.prod(size)}
    input_pixels, temporaries = math.prod(size), 0
    for index, unit in enumerate(network.units):
        assert isinstance(unit, Unit)
        pixels, outputs = math.prod(size), unit.conv.out_channels
        together = min(count, chunk * (input_pixels // pixels))
        # Input and output of the convolution, each once more in a lower precision, and the output of the previous
        # chunk.
        temporaries = max(temporaries, together * pixels * (2 * channels + 3 * outputs))
        if unit.skip == "open":
            held["kept"] = max(held.get("kept", 0), count * channels * pixels)
        size = list(pooled_size(size)) if unit.pool else size
        slot = str(index % 2)
        held[slot] = max(held.get(slot, 0), count * outputs * math.prod(size))
        channels = outputs
    return FLOAT_BYTES * (sum(held.values()) + temporaries)
