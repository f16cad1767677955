"""How unlikely the agreement of two label sequences would be under independence (paper 3.2, appendix A.2).

Every function takes any number of leading dimensions, so a whole population is scored at once: (..., N) labels,
(..., K) per-cluster values. Counts are exact integers; what is computed from them is double precision.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from scipy.special import logsumexp
from scipy.stats import binom
from torch import Tensor

REACH = 2**18
"""Terms of a binomial tail that are summed on each side of its bulk: 16 standard deviations or more for 10⁹ images."""


class Counts(NamedTuple):
    """The counts of two label sequences of length ``total`` from which the surprise score is computed."""

    first: Tensor
    """How often each cluster appears in view i. (..., K)"""
    second: Tensor
    """How often each cluster appears in view j. (..., K)"""
    matches: Tensor
    """t_k: images that both views put into k. (..., K)"""
    total: int


def count(labels_i: Tensor, labels_j: Tensor, clusters: int) -> Counts:
    """Counts of two label sequences (..., N) over ``clusters`` clusters."""
    _check_labels(labels_i, labels_j, clusters)
    matched = torch.where(labels_i == labels_j, labels_i, clusters)
    return Counts(
        first=_histogram(labels_i, clusters),
        second=_histogram(labels_j, clusters),
        matches=_histogram(matched, clusters + 1)[..., :clusters],
        total=labels_i.shape[-1],
    )


def joint_counts(labels_i: Tensor, labels_j: Tensor, clusters: int) -> Tensor:
    """How often each pair of clusters occurs. (..., K, K)"""
    _check_labels(labels_i, labels_j, clusters)
    pairs = labels_i.long() * clusters + labels_j.long()
    return _histogram(pairs, clusters * clusters).reshape(*pairs.shape[:-1], clusters, clusters)


def _histogram(values: Tensor, bins: int) -> Tensor:
    """Occurrences of 0..bins-1 along the last dimension. (..., bins)"""
    rows = values.long().reshape(-1, values.shape[-1])
    offsets = torch.arange(len(rows), device=rows.device)[:, None] * bins
    counted = torch.bincount((rows + offsets).flatten(), minlength=len(rows) * bins)
    return counted.reshape(*values.shape[:-1], bins)


def _check_labels(labels_i: Tensor, labels_j: Tensor, clusters: int) -> None:
    if labels_i.shape != labels_j.shape:
        raise ValueError(f"the two label sequences differ in shape: {tuple(labels_i.shape)}, {tuple(labels_j.shape)}")
    if labels_i.shape[-1] == 0:
        raise ValueError("the label sequences are empty")
    low = int(min(labels_i.min(), labels_j.min()))
    high = int(max(labels_i.max(), labels_j.max()))
    if low < 0 or high >= clusters:
        raise ValueError(f"labels reach from {low} to {high}; they must lie in 0..{clusters - 1}")


def marginal(counts: Counts) -> Tensor:
    """p_k: the share of all views, i or j, in cluster k. (..., K)"""
    return (counts.first + counts.second).double() / (2 * counts.total)


def over_matching(counts: Counts) -> Tensor:
    """Clusters whose observed match rate exceeds the null rate p_k²; decided in whole numbers. (..., K)"""
    views = (counts.first + counts.second).long()
    return 4 * counts.total * counts.matches.long() > views * views


def divergence(observed: Tensor, null: Tensor) -> Tensor:
    """Binary Kullback-Leibler divergence D(observed || null), with 0 log 0 = 0."""
    happens: Tensor = torch.special.xlogy(observed, observed / null)
    fails: Tensor = torch.special.xlogy(1 - observed, (1 - observed) / (1 - null))
    return happens + fails


def cluster_surprise(counts: Counts) -> Tensor:
    """D_k of the over-matching clusters, 0 for the others. (..., K)"""
    over = over_matching(counts)
    # Where a cluster does not over-match the value is not used; 1/2 keeps it finite.
    observed = torch.where(over, counts.matches.double() / counts.total, 0.5)
    null = torch.where(over, marginal(counts) ** 2, 0.5)
    return torch.where(over, divergence(observed, null), 0.0)


def surprise(counts: Counts) -> Tensor:
    """S: the sum of D_k over the over-matching clusters. (...)"""
    return cluster_surprise(counts).sum(-1)


def surprising(counts: Counts, tau: float) -> Tensor:
    """Clusters that over-match and have D_k >= tau. (..., K)"""
    return over_matching(counts) & (cluster_surprise(counts) >= tau)


def contributing(labels_i: Tensor, labels_j: Tensor, surprising_clusters: Tensor) -> Tensor:
    """Images whose views agree on a surprising cluster (paper eq. 9). (N,) booleans"""
    return (labels_i == labels_j) & surprising_clusters[labels_i]


def agreement(counts: Counts) -> Tensor:
    """Fraction of images that both views put into one cluster. (...)"""
    return counts.matches.sum(-1).double() / counts.total


def active(counts: Counts) -> Tensor:
    """Number of clusters that hold at least one view. (...)"""
    return ((counts.first + counts.second) > 0).sum(-1)


def surprise_in_nats(counts: Counts) -> Tensor:
    """-log P[t_k or more matches at k] under the null hypothesis, exactly. (..., K)

    Never below the Chernoff bound N D_k. The binomial tail is summed in logarithms, so it stays exact where the
    probability itself would be 0 in floating point. An empty cluster has t_k = 0, hence probability 1 and value 0.
    """
    matches = counts.matches.cpu().numpy()
    null = (marginal(counts) ** 2).cpu().numpy()
    result = np.zeros(matches.shape)
    for index in np.ndindex(*matches.shape):
        if matches[index] > 0:
            # Where the tail begins or the bulk lies; what is farther away than REACH is too unlikely to change a digit.
            middle = max(int(matches[index]), int(counts.total * null[index]))
            first = max(int(matches[index]), middle - REACH)
            tail = np.arange(first, min(counts.total, middle + REACH) + 1)
            result[index] = -logsumexp(binom.logpmf(tail, counts.total, null[index]))
    return torch.from_numpy(np.maximum(result, 0.0))


def orderliness(joint: Tensor, smoothing: float = 1e-3) -> Tensor:
    """Ω = (H* + λ) / (Ĥ + λ) from the counts of cluster pairs (..., K, K), with λ = ``smoothing`` (appendix A.2).

    Ĥ is the entropy of the observed pairs, H* = H(p_i) + H(p_j) the largest that shuffling within the views can reach.
    """
    observed = pair_entropy(joint)
    return (observed + mutual_information(joint) + smoothing) / (observed + smoothing)


def pair_entropy(joint: Tensor) -> Tensor:
    """Ĥ: the entropy in nats of the observed pairs, from their counts (..., K, K)."""
    return _entropy(joint.flatten(-2))


def mutual_information(joint: Tensor) -> Tensor:
    """Mutual information of the two labels in nats, from the counts of cluster pairs (..., K, K)."""
    shuffled = _entropy(joint.sum(-1)) + _entropy(joint.sum(-2))
    return (shuffled - pair_entropy(joint)).clamp(min=0)  # below 0 only by rounding


def _entropy(counts: Tensor) -> Tensor:
    share = counts.double() / counts.sum(-1, keepdim=True)
    terms: Tensor = torch.special.xlogy(share, share)
    return -terms.sum(-1)
