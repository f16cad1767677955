"""How much of a batch passes through a layer of the network together.

On a CPU that is what stays in its cache. A GPU wants as much as possible at once, up to its free memory: the
members of a population are scored one after the other and layer by layer, so that even the paper's batch of 3,000
images with 32 members needs less than a gigabyte.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..config import Config
from ..model.backbone import build_network
from ..model.network import ResNet9, Unit, pooled_size

IN_CACHE = 50
"""Views whose activations stay in a CPU's cache."""
SHARE = 0.5
"""Part of the free memory that is planned with: convolutions need a workspace, and others use the device too."""
NUMBER = 4
"""Bytes of a float32."""


def chosen(device: torch.device, images: Sequence[int], config: Config) -> int:
    """The chunk for evolution on uint8 images of shape (N, C, H, W)."""
    if device.type not in ("cuda", "mps"):
        return IN_CACHE
    count, channels, height, width = images
    scale = config.views.upsample
    shape = (min(count, config.evolution.batch), channels, height * scale, width * scale)
    with torch.device("meta"):  # only its sizes are looked at
        network = build_network(channels, config.network, config.network.clusters, heads=1)
    assert isinstance(network, ResNet9)
    return fitting(free_bytes(device), shape, network)


def free_bytes(device: torch.device) -> int:
    """Memory of a GPU that nobody uses."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()


def fitting(free: int, views: tuple[int, int, int, int], network: ResNet9) -> int:
    """The largest chunk for views (N, C, H, W) that fits into ``free`` bytes: all views, or a power of two, at least 1.

    Powers of two, so that a little more or less free memory seldom changes how a run is computed.
    """
    whole = views[0]
    candidates = [whole, *(2**exponent for exponent in range(whole.bit_length(), -1, -1) if 2**exponent < whole)]
    return next((chunk for chunk in candidates if bytes_needed(chunk, views, network) <= SHARE * free), 1)


def bytes_needed(chunk: int, views: tuple[int, int, int, int], network: ResNet9) -> int:
    """Memory in which a member is scored: what is held of the whole batch, and what a chunk needs on its way."""
    count, channels, *size = views
    if network.folded:
        channels, size = 4 * channels, [-(-side // 2) for side in size]
    held = {"views": 2 * math.prod(views), "entrance": count * channels * math.prod(size)}
    entrance, on_the_way = math.prod(size), 0
    for index, unit in enumerate(network.units):
        assert isinstance(unit, Unit)
        pixels, outputs = math.prod(size), unit.conv.out_channels
        together = min(count, chunk * (entrance // pixels))
        # In and out of the convolution, either once more in a lower precision, and the output of the chunk before.
        on_the_way = max(on_the_way, together * pixels * (2 * channels + 3 * outputs))
        if unit.skip == "open":
            held["kept"] = max(held.get("kept", 0), count * channels * pixels)
        size = list(pooled_size(size)) if unit.pool else size
        slot = str(index % 2)
        held[slot] = max(held.get(slot, 0), count * outputs * math.prod(size))
        channels = outputs
    return NUMBER * (sum(held.values()) + on_the_way)
