"""``SurpriseClustering``: the scikit-learn estimator."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import nn

from ..config import SearchName, presets
from ..config.images import Color, InputKind
from ..config.settings import KindOption
from ..config.storage import write_atomically
from ..core import surprise
from ..model import onnx_file as onnxfile
from ..model.assessment import evaluate
from ..model.cluster_model import Model, Prediction
from ..model.exemplars import Choices, find_exemplars
from ..model.hierarchy import path_text
from ..model.limits import Limits
from ..model.merge_tree import Level
from ..model.similarity import SimilarityIndex
from ..model.verdict import Verdict
from . import fitting
from .inputs import Input, later_input
from .params import integer
from .state import FittedState, from_bytes, from_place, to_bytes
from .tree import tree_rows

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
Texts = npt.NDArray[np.object_]


class SurpriseClustering(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Sort images into clusters without being told how many there are.

    Parameters
    ----------
    input : {"images", "embeddings"}
        What X holds. embeddings: feature vectors (N, D), or (N, V, D) for V views of each item.
    max_clusters : int
        Outputs of the network: the upper bound on the number of clusters.
    n_clusters : int or None
        Cut the merge tree at this many clusters. None: read from the data.
    preset : {"fast", "paper"}
        ``fast``: minutes on a laptop. ``paper``: the paper's method and hyper-parameters.
    search : {"relaxed", "evolution", "guided"} or None
        Instead of the preset's search.
    n_init : int or None
        Number of initializations; the one whose views tell most about each other is selected. None: one.
    rounds : int or "auto"
        Rounds of searching for sub-clusters within the clusters: see ``hierarchy_``. "auto": until a round finds
        nothing further.
    augmentation : {"auto", "mnist", "fashion-mnist", "usps", "digits"}
        Which changes of an image carry no meaning: by default those that suit most images of their size. Those of a
        named data set are for objects on black background, which is then not removed.
    kind : {"auto", "glyph", "gray", "object", "scene"}
        What the pictures are, which decides the defaults of views, augmentation and search in the fast preset:
        gray objects on a plain background, other gray pictures, colored objects on an uncluttered background,
        photographs full of detail. auto: chosen from the pictures. Not used with a named augmentation or a backbone.
    image_shape : tuple or None
        Shape of one image, (H, W), (H, W, C) or (C, H, W), if X is a 2-D array of flattened images; one side may be -1
        for what is left. None: squares of pixels; other numbers of values, and values that look like feature vectors
        (negative ones, fractions above 1, rows of length 1), are refused.
    image_size, color
        Longer side in pixels to which images are brought, from 8 to 1024 (None: 48, or less if they are smaller), and,
        if X is a list of paths, "auto", "gray" or "rgb".
    settings : dict or None
        Any other setting, which overrides the preset as in a configuration file, for example
        ``{"relaxed": {"temperature": 0.03}, "schedule": ["search=relaxed:20", "merge=merge:1", "refine=refine:10"]}``.
    backbone : str, torch.nn.Module or None
        A pre-trained network whose features are clustered instead of pixels, the way for photographs: an ONNX file,
        "hf:ORG/NAME", or a name that ``cts backbones`` lists, as for ``cts fit --backbone``. Its features are computed
        once and kept in the cache. Or your own network from views (B, C, H, W) with values in [0, 1] to features
        (B, D), instead of ResNet-9; it is copied, not changed.
    freeze_backbone : bool
        Train the heads only. A backbone that is named is always frozen.
    backbone_size, copies
        For a backbone that is named: side in pixels at which it sees the pictures (None: what it was made for), and
        augmented copies of each view that it sees (None: 4 to 15, fewer for many pictures).
    min_confidence : float
        Images with a lower confidence get the label -1.
    max_novelty : float
        Images with a higher novelty get the label -1: 0.95 refuses images that are more unlike the training images than
        95 % of their kind.
    device : str
        "cuda", "mps" or "cpu"; "auto": the first of them that is available.
    n_threads : int or None
        CPU threads; None: one for each CPU that the process may use, however busy they are. The same ``random_state``
        gives other clusters with another number of threads: give ``n_threads`` to repeat a result on another machine.
    random_state : int, RandomState or None
        Seed. Results repeat with the same version, device, precision and ``n_threads``. ``settings={"precision":
        "auto"}``, the default, is bfloat16 on a CPU that computes with it and float32 elsewhere.
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    labels_ : (N,) cluster of every training image, 0 being the largest
    probabilities_ : (N,) confidence of every label: the probability that an augmented view gets the same cluster
    novelty_ : (N,) how unlike the others every training image is: the share of images that are less so
    n_clusters_ : number of clusters found
    cluster_names_ : name of every cluster: its number, unless a person named the clusters of a run
    cluster_info_ : list of one dict per cluster: size, surprise, nats (-log p), agreement of the views
    exemplars_ : list of one dict per exemplar, a table: cluster, kind ("typical", or "boundary": hardly nearer to its
        own cluster than to the second one), rank, image (its position in X), confidence, second, second_confidence; up
        to five of each kind per cluster
    merge_tree_ : list of merges (into, merged, phi), weakest boundary first
    levels_ : list of the numbers of clusters at which the clustering is stable, the selected one first, each
        with n_clusters, evidence, information, agreement and strength; ``cut(levels_[1])`` cuts at the second one
    hierarchy_ : list of one dict per node of the tree of clusters: path ("3" or "3/1"), parent, size, children (paths),
        name, nats (what its split explains), outcome ("split", or why not) and why, a sentence; outcome is None where
        no sub-clusters were searched. ``labels_at(depth)`` has the paths of the training images
    verdict_ : how far the clusters can be trusted: strength ("strong", "weak" or "nothing found"), reasons, advice;
        None for a model file without its run
    n_threads_ : number of CPU threads of the fit, on which the clusters of a ``random_state`` depend
    history_ : list of one dict per step
    quarantine_ : list of (file, reason, kind) for pictures that could not be read
    n_features_in_ : values per image

    Examples
    --------
    >>> from converge_to_surprise import SurpriseClustering
    >>> from converge_to_surprise.data.synthetic import striped_images
    >>> images, _ = striped_images(60)
    >>> quick = {"schedule": ["search=relaxed:4", "merge=merge:1", "refine=refine:2"], "views": {"upsample": 1}}
    >>> model = SurpriseClustering(n_init=1, settings=quick, random_state=0).fit(images)
    >>> model.labels_.shape, bool((model.predict(images) == model.labels_).all())
    ((60,), True)
    """

    def __init__(
        self,
        *,
        input: InputKind = "images",  # noqa: A002 - the name of the option of the command line
        max_clusters: int = 64,
        n_clusters: int | None = None,
        preset: presets.PresetName = "fast",
        search: SearchName | None = None,
        n_init: int | None = None,
        rounds: int | Literal["auto"] = 0,
        augmentation: Literal["auto", "mnist", "fashion-mnist", "usps", "digits"] = "auto",
        kind: KindOption = "auto",
        image_shape: tuple[int, ...] | None = None,
        image_size: int | None = None,
        color: Color = "auto",
        settings: Mapping[str, Any] | None = None,
        backbone: str | nn.Module | None = None,
        freeze_backbone: bool = False,
        backbone_size: int | None = None,
        copies: int | None = None,
        min_confidence: float = 0.0,
        max_novelty: float = 1.0,
        device: str = "auto",
        n_threads: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.input = input
        self.max_clusters = max_clusters
        self.n_clusters = n_clusters
        self.preset = preset
        self.search = search
        self.n_init = n_init
        self.rounds = rounds
        self.augmentation = augmentation
        self.kind = kind
        self.image_shape = image_shape
        self.image_size = image_size
        self.color = color
        self.settings = settings
        self.backbone = backbone
        self.freeze_backbone = freeze_backbone
        self.backbone_size = backbone_size
        self.copies = copies
        self.min_confidence = min_confidence
        self.max_novelty = max_novelty
        self.device = device
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the clusters of images X; ``y`` is ignored.

        X: (N, H, W), (N, H, W, C) or (N, C, H, W) arrays or tensors, (N, values) with ``image_shape``, a folder, or
        paths in a list or a Series; with ``input="embeddings"`` (N, D) or (N, V, D) numbers.
        Values are taken as 0..255, or as 0..1 if they are floats and none is larger; if some lie beyond 0..255, the
        least becomes black and the largest white, here and for all images that are given later.
        """
        self._set_fitted(fitting.fit(self, X))
        return self

    def fit_predict(self, X: Any, y: Any = None, **kwargs: Any) -> Labels:
        """Find the clusters of images X and return ``labels_``."""
        labels: Labels = super().fit_predict(X, y, **kwargs)
        return labels

    def predict(self, X: Any) -> Labels:
        """The cluster of each image, -1 below ``min_confidence`` and above ``max_novelty``. (N,)"""
        return self._each(X, self._labels, -1)

    def predict_proba(self, X: Any) -> Floats:
        """The probability of every cluster. (N, n_clusters_)"""
        return self._each(X, lambda part: part.probabilities[:, : self.n_clusters_].numpy(), 0)

    def labels_at(self, depth: int | None = None) -> Texts:
        """The path of every training image down to ``depth``: 1 are the clusters, 2 their sub-clusters as in "3/1".

        Where a cluster is not split so far, the path ends earlier; None: the leaves. "-1": in no cluster. (N,)
        """
        self._model()
        return self._fitted.given.spread(self._paths(self.model_.interpret(self._fitted.outputs), depth), "-1")

    def predict_at(self, X: Any, depth: int | None = None) -> Texts:
        """The same for other images. (N,)"""
        self._model()
        return self._each(X, lambda part: self._paths(part, depth), "-1")

    def _paths(self, prediction: Prediction, depth: int | None) -> Texts:
        if depth is not None and integer("depth", depth) < 1:
            raise ValueError(f"depth is {depth}; it must be at least 1")
        texts = [path_text(path[:depth]) for path in self.model_.paths]
        pairs = zip(self._labels(prediction).tolist(), prediction.leaf.tolist(), strict=True)
        return np.array([texts[leaf] if label >= 0 else "-1" for label, leaf in pairs], dtype=object)

    def confidence(self, X: Any) -> Floats:
        """The confidence of each image's cluster: the probability that an augmented view gets it too. (N,)"""
        return self._each(X, lambda part: part.confidence.numpy(), 0)

    def novelty(self, X: Any) -> Floats:
        """How unlike the training images each image is: above 0.95, more than 95 % of their kind. (N,)"""
        if self._model().active.calibration.novelty is None:
            raise ValueError("this model does not hold what novelty is computed from; fit it again with this version")
        return self._each(X, lambda part: part.novelty.numpy(), np.nan)

    def transform(self, X: Any) -> Floats:
        """The embedding of each image: the network's features, mean of both views. (N, D)"""
        return self._each(X, lambda part: part.embedding.numpy(), np.nan)

    def similar(self, X: Any, n: int = 10) -> tuple[Labels, Floats]:
        """The ``n`` training images that are most similar to each image of X, most similar first.

        Returns their positions in the X of ``fit`` (N, n), and 1 - cosine of the angle between the features as distance
        (N, n): 0 for the same picture, about 1 for unrelated ones. A training image finds itself first. For files that
        cannot be read the positions are -1 and the distances NaN. There are fewer than ``n`` if fewer were fitted.
        """
        if integer("n", n) < 1:
            raise ValueError(f"n is {n}; it must be at least 1")
        model, outputs, kept = self._model(), self._fitted.fitted.outputs, self._fitted.given.kept
        if not outputs.features.shape[1]:
            raise ValueError("this model knows no training images; fit it, or load the run folder that it comes from")
        given = self._later(X)
        queries = replace(model, cut_at=None, annotations=None).run_all(given.images, ("features",)).features
        found = SimilarityIndex.of(outputs.features).search(queries, n)
        positions = found.images.numpy() if kept is None else kept[found.images.numpy()]
        return given.spread(positions, -1), given.spread(found.distances.numpy(), np.nan)

    def score(self, X: Any, y: Any = None) -> float:
        """Orderliness Ω of the two views' clusters: at least 1, higher is better; ``y`` is ignored."""
        groups = torch.tensor(self._model().groups)
        outputs = self.model_.run_all(self._later(X).images)
        labels_i, labels_j = groups[outputs.view_i], groups[outputs.view_j]
        return float(surprise.orderliness(surprise.joint_counts(labels_i, labels_j, len(groups))))

    def cut(self, n_clusters: int | Level | None = None) -> Self:
        """A new estimator with the merge tree cut at another number of clusters, without training.

        ``n_clusters``: a number, or a level of ``levels_``. None: where the fit cut it. This estimator is not changed.
        """
        model = self._model()
        n_clusters = n_clusters.n_clusters if isinstance(n_clusters, Level) else n_clusters
        wanted = model.merge_result.n_clusters if n_clusters is None and model.merge_result is not None else n_clusters
        twin = type(self)(**self.get_params(deep=False))
        state = self._fitted
        if wanted is not None:
            cut = model.cut(integer("n_clusters", wanted))
            state = replace(state, fitted=state.fitted._replace(model=cut))
        twin._set_fitted(state)
        return twin

    def save(self, path: str | Path) -> None:
        """Write everything to one file: weights, settings, labels, no code. ``load`` and ``cts predict`` read it."""
        self._model()
        write_atomically(Path(path), to_bytes(self._fitted, self.get_params(deep=False)))

    @classmethod
    def load(cls, path: str | Path, backbone: str | nn.Module | None = None) -> Self:
        """Read what ``save`` wrote, or a run of the command line: its folder, or its model file.

        Of a run, ``labels_`` has the order of its labels.csv, names and merges are applied, and finer cuts know their
        ``probabilities_`` to three decimals. A model file without its run holds no training images: ``labels_`` is
        empty. A model with a backbone of your own needs a module of the same kind again; one with a named backbone
        opens it where it was, or where ``backbone`` says.
        """
        if not isinstance(path, str | os.PathLike):
            raise ValueError(f"path is {path!r}; it must be a run folder, or a file that save() wrote")
        state, params = from_place(Path(path), backbone)
        estimator = cls(**params if backbone is None else params | {"backbone": backbone})
        estimator._set_fitted(state)
        return estimator

    def export_onnx(self, path: str | Path) -> None:
        """Write one ONNX file from raw images (uint8) or embeddings (float32) to cluster, confidence and novelty."""
        onnxfile.export(self._model(), Path(path))

    def __getstate__(self) -> dict[str, Any]:
        params = self.get_params(deep=False)
        return {"params": params, "fitted": to_bytes(self._fitted, params) if hasattr(self, "_fitted") else None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["params"])  # type: ignore[misc]
        if state["fitted"] is not None:
            self._set_fitted(from_bytes(state["fitted"], "in the pickle", self.backbone)[0])

    def _set_fitted(self, state: FittedState) -> None:
        """Set the learned attributes."""
        self._fitted = state
        self.model_: Model = state.fitted.model
        prediction = self.model_.interpret(state.outputs)
        self.labels_: Labels = state.given.spread(self._labels(prediction), -1)
        self.probabilities_: Floats = state.given.spread(prediction.confidence.numpy(), 0)
        self.novelty_: Floats = state.given.spread(prediction.novelty.numpy(), np.nan)
        self.n_clusters_ = self.model_.n_clusters
        self.cluster_names_: list[str] = self.model_.cluster_names[: self.n_clusters_]
        columns = ("cluster", "size", "surprise", "nats", "agreement", "surprising")
        known = len(state.outputs.winner) > 0
        table = evaluate(self.model_, state.outputs, None, both=True).clusters if known else []
        self.cluster_info_ = [{name: getattr(row, name) for name in columns} for row in table]
        self.exemplars_ = self._exemplars(prediction)
        self.merge_tree_ = [] if self.model_.merge_result is None else list(self.model_.merge_result.steps)
        self.levels_: list[Level] = (
            [] if self.model_.merge_result is None else self.model_.merge_result.reachable_levels
        )
        self.hierarchy_ = tree_rows(self.model_, prediction)
        self.verdict_: Verdict | None = state.verdict
        self.n_threads_ = self.model_.config.threads
        self.history_ = state.history
        self.quarantine_ = state.given.quarantine
        self.n_features_in_ = state.features_in
        if state.feature_names is not None:
            self.feature_names_in_ = np.array(state.feature_names, dtype=object)
        self._n_features_out = self.model_.active.network.head.in_features

    def _exemplars(self, prediction: Prediction) -> list[dict[str, Any]]:
        """Typical and boundary images as rows; positions are those in X."""
        rows = find_exemplars(Choices.of(prediction))
        kept = self._fitted.given.kept
        return [row._asdict() | {"image": row.image if kept is None else int(kept[row.image])} for row in rows]

    def _labels(self, prediction: Prediction) -> Labels:
        limits = Limits(float(self.min_confidence), float(self.max_novelty))
        limits.check(self.model_)
        return np.asarray(limits.clusters(prediction))

    def _model(self) -> Model:
        check_is_fitted(self)
        return self.model_

    def _later(self, X: Any) -> Input:
        return later_input(self, X, self._model().shape, self._fitted.given.scale)

    def _each(self, X: Any, function: Callable[[Prediction], Any], missing: float | str) -> npt.NDArray[Any]:
        """``function`` of the predictions for all images; ``missing`` for files that cannot be read."""
        given = self._later(X)
        return given.spread(np.concatenate([function(part) for part in self.model_.predict(given.images)]), missing)
