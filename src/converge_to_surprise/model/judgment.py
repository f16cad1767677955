"""Can the clusters be trusted? A verdict from evidence that needs no classes.

A clustering always comes out of a search. What makes it believable is that independent heads found the same clusters,
that the boundaries hold for neighbors and under augmentation, that both views of an image agree, and that the clusters
are about more than light and color, which two views of a photograph share most easily.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from ..config.images import InputKind
from ..core.views import to_float
from .assessment import Assessment
from .merge_tree import HOLDS, Level, MergeResult
from .verdict import Verdict

AGREEMENT = 0.85
"""Adjusted Rand index between heads from which on they found the same clusters."""
HOLDS_STORED = 0.6
"""Strength from which on the splits between clusters of stored features hold: their neighbors cross more of them."""
HOLDS_WEAKEST = 0.75
"""Strength from which on the weakest of the splits between clusters holds if the coarser ones do."""
VIEWS_AGREE = 0.8
"""Fraction of images whose two views get the same cluster."""
EXPLAINED = 0.9
"""Mean accuracy over clusters from which on light and color alone tell them apart."""
SAMPLE = 3000
"""Images from which ``explained_by_light`` is estimated."""
FOLDS = 5


def judge(
    assessment: Assessment,
    merge_result: MergeResult | None,
    explained: float,
    has_backbone: bool,
    kind: InputKind = "images",
) -> Verdict:
    """The verdict on a finished run. ``explained``: see ``explained_by_light``. ``kind``: what was clustered."""
    n_clusters, surprising = len(assessment.clusters), assessment.measures.surprising
    if n_clusters < 2 or surprising < 2:
        reason = "all images are in one cluster" if n_clusters < 2 else "the views agree no more than by chance"
        return Verdict("nothing found", [reason], _advice(has_backbone, kind))
    levels = [] if merge_result is None else [one for one in merge_result.levels if one.n_clusters == n_clusters]
    level = levels[0] if levels else None
    doubts = _doubts(assessment, merge_result, level, explained)
    # The splits between clusters of images must hold better if not even two clusters clearly do.
    needed = HOLDS if merge_result is not None and merge_result.one_is_a_level else HOLDS_WEAKEST
    if has_backbone or kind == "embeddings":
        needed = HOLDS_STORED
    if level is not None and level.strength < needed:
        doubts.insert(0, f"the splits between clusters hardly hold ({level.strength:.2f}), they may be parts of one")
    if doubts:
        return Verdict("weak", doubts, _advice(has_backbone, kind))
    reasons = [f"both views agree for {assessment.measures.agreement:.0%} of the images"]
    if level is not None and merge_result is not None:
        if len(merge_result.agreement) > 1:  # a single head, as evolution has, agrees with itself
            reasons.insert(0, f"independent heads agree ({level.agreement:.2f})")
        reasons.append(f"the weakest split between clusters holds ({level.strength:.2f})")
    return Verdict("strong", reasons, [])


def _doubts(
    assessment: Assessment, merge_result: MergeResult | None, level: Level | None, explained: float
) -> list[str]:
    doubts = []
    if level is not None and level.agreement < AGREEMENT:
        doubts.append(f"independent heads found different clusters (agreement {level.agreement:.2f})")
    if assessment.measures.agreement < VIEWS_AGREE:
        doubts.append(f"both views agree for {assessment.measures.agreement:.0%} of the images only")
    if merge_result is not None and len(assessment.clusters) < merge_result.n_clusters:
        doubts.append(f"{merge_result.n_clusters - len(assessment.clusters)} clusters were lost in refining")
    # Many clusters that differ in light are different kinds of pictures; two or three are often sessions of one kind.
    if explained >= EXPLAINED and len(assessment.clusters) <= 3:
        doubts.append(f"light and color alone tell the clusters apart ({explained:.0%})")
    return doubts


def _advice(has_backbone: bool, kind: InputKind) -> list[str]:
    if kind == "embeddings":
        return ["try embeddings of another model", "several views of each item (N, V, D)", "add items"]
    if has_backbone:
        return ["try another backbone or a larger --backbone-size", "add images"]
    return ["for photographs try --backbone (see `cts backbones`)", "another --image-size", "add images"]


def explained_by_light(images: Tensor, labels: npt.NDArray[np.int64]) -> float:
    """How well mean, spread and rim of the colors predict the cluster of an image, by its neighbors in them.

    ``images``: uint8 (N, C, H, W). The accuracy is that on images left out, averaged over the clusters: 1 / K for K
    clusters that have nothing to do with light and color.
    """
    chosen = np.random.default_rng(0).permutation(len(labels))[:SAMPLE]
    sizes = np.bincount(labels[chosen])
    chosen = chosen[sizes[labels[chosen]] >= FOLDS]
    targets = labels[chosen]
    if len(np.unique(targets)) < 2:
        return 0.0
    statistics = torch.cat([_light(images[torch.from_numpy(part)]) for part in np.array_split(chosen, 8) if len(part)])
    model = make_pipeline(StandardScaler(), KNeighborsClassifier(FOLDS))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    found = cross_val_predict(model, statistics.numpy(), targets, cv=folds)
    return float(np.mean([(found[targets == cluster] == cluster).mean() for cluster in np.unique(targets)]))


def _light(images: Tensor) -> Tensor:
    """Mean and spread of every channel, of the whole image and of its rim. (n, 4 C)"""
    pixels = to_float(images)
    rim = torch.cat([pixels[:, :, 0], pixels[:, :, -1], pixels[..., 0], pixels[..., -1]], 2)
    whole = pixels.flatten(2)
    return torch.cat([whole.mean(2), whole.std(2), rim.mean(2), rim.std(2)], 1)
