"""Where the heads of a node start: clusterings of the neighbor graph of its own images, from coarse to fine."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..config import Config
from .graph_start import UNASSIGNED, cluster_graph
from .neighbors import Whitening, exact_neighbors
from .node_alike import alike
from .node_bank import ViewBank
from .node_heads import OUTPUTS, NodeImages

HEADS = 6
"""Independent heads of every node."""
RESOLUTIONS = (0.25, 1.5)
"""Of the clusterings of a node's graph: within a node few sub-clusters are expected."""
LINKS = 15
"""Links of each image in the graph."""
NEIGHBORS = 5
"""The nearest of them may give view j."""


def node_images(bank: ViewBank, rows: Tensor, node: int, config: Config, threads: int) -> NodeImages:
    """The images of a node at ``rows`` of the bank, with their neighbors and what the heads imitate."""
    mean = bank.mean[rows]
    points = Whitening.of(mean)(mean)
    near = exact_neighbors(points, min(LINKS, len(rows) - 1), threads)
    graph = replace(config, relaxed=replace(config.relaxed, heads=HEADS, resolutions=RESOLUTIONS))
    found = cluster_graph(near, torch.arange(len(rows)), graph, node)
    targets = torch.where(found < OUTPUTS, found, UNASSIGNED)
    return NodeImages(rows, near[:, :NEIGHBORS], targets, alike(bank, rows, config))
