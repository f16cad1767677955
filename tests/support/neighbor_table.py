"""The neighbors of images in one call."""

from __future__ import annotations

from torch import Tensor

from converge_to_surprise.config import Config
from converge_to_surprise.model.network import ClusterNetwork
from converge_to_surprise.search.neighbors import Search, image_points


def nearest_neighbors(images: Tensor, config: Config, threads: int, network: ClusterNetwork | None = None) -> Tensor:
    """Neighbors of every image, by edges or by features. (N, config.relaxed.neighbors)"""
    return Search(config.seed, threads)(image_points(images, config, network), config.relaxed.neighbors)
