"""Surprise that is left within clusters, and the test of whether there is any (paper, appendix A.1).

H1: given its cluster, the views of an image are independent. Within each cluster (a *node* of a tree of clusters) the
sub-labels of both views are compared with what their marginals within the node allow: D, S, the binomial tail and Ω are
those of ``surprise.py``, conditional on the node. What a node explains beyond its own null hypothesis is N_c I_c nats
(I_c: mutual information of the two sub-labels). By the chain rule these add up over nodes and rounds: their sum is the
log-likelihood ratio of the last hypothesis against the first.

The test is exact whatever the marginals are. If the views are independent given the node, every pairing of its views i
with its views j is equally likely, so the number of images that both views put into k is hypergeometric.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, logsumexp
from torch import Tensor

from . import surprise
from .surprise import Counts


class NodeLabels(NamedTuple):
    """The sub-labels of both views of the images of one node."""

    view_i: Tensor
    """(n,)"""
    view_j: Tensor
    """(n,)"""


def by_node(labels_i: Tensor, labels_j: Tensor, nodes: Tensor) -> dict[int, NodeLabels]:
    """The sub-labels (N,) of each node that holds an image; ``nodes`` (N,) below 0: in none."""
    found = {}
    for node in sorted(set(nodes.tolist())):
        if node >= 0:
            inside = nodes == node
            found[node] = NodeLabels(labels_i[inside], labels_j[inside])
    return found


def counts_by_node(labels: Mapping[int, NodeLabels], clusters: int) -> dict[int, Counts]:
    """The counts of each node, from which D, S, the tail and the agreement are computed as in ``surprise.py``."""
    return {node: surprise.count(*sides, clusters) for node, sides in labels.items()}


def conditional_surprise(counts: Mapping[int, Counts]) -> float:
    """S given the node: the mean of the nodes' S over all images."""
    images = sum(one.total for one in counts.values())
    return sum(one.total * float(surprise.surprise(one)) for one in counts.values()) / max(1, images)


def conditional_orderliness(labels: Mapping[int, NodeLabels], clusters: int, smoothing: float = 1e-3) -> float:
    """Ω given the node: both entropies are means of the nodes' over all images, see ``surprise.orderliness``."""
    images = sum(len(sides.view_i) for sides in labels.values())
    observed = information = 0.0
    for sides in labels.values():
        joint = surprise.joint_counts(*sides, clusters)
        share = len(sides.view_i) / images
        observed += share * float(surprise.pair_entropy(joint))
        information += share * float(surprise.mutual_information(joint))
    return (observed + information + smoothing) / (observed + smoothing)


def explained(labels: NodeLabels, clusters: int) -> float:
    """N I: the log-likelihood ratio, in nats, of these sub-labels being dependent against their being independent."""
    joint = surprise.joint_counts(*labels, clusters)
    return len(labels.view_i) * float(surprise.mutual_information(joint))


def log_p_value(counts: Counts) -> float:
    """Log of the probability that independent views with these marginals match so often on some sub-label.

    The smallest tail times the number of sub-labels (Bonferroni). Two sub-labels are one test: what one of them gains,
    the other one gains too. At most 0; exactly 0 where there is nothing to test.
    """
    first, second, matches = (side.tolist() for side in (counts.first, counts.second, counts.matches))
    used = [k for k in range(len(first)) if first[k] + second[k] > 0]
    if len(used) < 2:
        return 0.0
    tails = [_log_tail(matches[k], first[k], second[k], counts.total) for k in used]
    return min(0.0, min(tails) + math.log(len(used) if len(used) > 2 else 1))


def _log_tail(matches: int, first: int, second: int, total: int) -> float:
    """log P[at least so many of ``first`` draws hit one of ``second`` of ``total`` images]: the hypergeometric tail."""
    low, high = max(0, first + second - total), min(first, second)
    if matches <= low:
        return 0.0
    hits = np.arange(matches, high + 1)
    terms = _log_choose(second, hits) + _log_choose(total - second, first - hits) - _log_choose(total, first)
    return min(0.0, float(logsumexp(terms)))


def _log_choose(n: int, k: npt.NDArray[np.int64] | int) -> npt.NDArray[np.float64]:
    result: npt.NDArray[np.float64] = gammaln(n + 1) - gammaln(np.add(k, 1)) - gammaln(n - np.asarray(k) + 1)
    return result


def holm(log_p_values: Sequence[float]) -> list[float]:
    """Logs of p-values, each adjusted for having tried all of them (Holm).

    Rejecting those below α errs anywhere with probability α at most, whatever the dependence between them.

    >>> [round(math.exp(value), 6) for value in holm([math.log(0.01), math.log(0.04), math.log(0.03)])]
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(log_p_values)), key=lambda index: log_p_values[index])
    adjusted, highest = [0.0] * len(order), -math.inf
    for rank, index in enumerate(order):
        highest = max(highest, min(0.0, log_p_values[index] + math.log(len(order) - rank)))
        adjusted[index] = highest
    return adjusted
