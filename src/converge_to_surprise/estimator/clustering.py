"""``SurpriseClustering``: the scikit-learn face."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import nn

from ..cli.screen import ProgressDisplay
from ..config import Config, SearchName, presets
from ..config import files as configfile
from ..config.storage import write_atomically
from ..core import surprise
from ..data.image_options import Color
from ..data.store import ImageStore, check_clusterable
from ..model import devices
from ..model import onnx_file as onnxfile
from ..model.backbone import Backbone
from ..model.cluster_model import Model, Prediction
from ..runs import session
from ..runs.result import judge
from ..search.record import Record
from ..search.trainer import Trainer, available_threads
from .inputs import Input, first_input, later_input, seed_of, whole_number
from .state import Fitted, from_bytes, to_bytes

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


class SurpriseClustering(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Sort images into clusters without being told how many there are.

    Parameters
    ----------
    max_clusters : int
        Outputs of the network: the upper bound on the number of clusters.
    n_clusters : int or None
        Cut the merge tree at this many clusters. None lets the images say.
    preset : {"fast", "paper"}
        ``fast``: minutes on a laptop. ``paper``: the paper's method and numbers to the letter.
    search : {"relaxed", "evolution"} or None
        In place of the preset's search.
    n_init : int or None
        Random starts; the one with the best balanced clusters is taken. None: two with the fast preset's search, else one.
    augmentation : {"auto", "mnist", "fashion-mnist", "usps", "digits"}
        Which changes of a picture mean nothing: by default those that suit most pictures of their size. Those of a
        named data set are for things on black background, which is then not removed.
    image_shape : tuple or None
        Shape of one image, (H, W), (H, W, C) or (C, H, W), if X is a 2-D array of flattened images. None takes
        squares where that is possible.
    image_size, color
        If X is a list of paths: longer side in pixels, and "auto", "gray" or "rgb".
    settings : dict or None
        Any other number of the run, laid over the preset as in a configuration file, for example
        ``{"relaxed": {"temperature": 0.03}, "schedule": ["search=relaxed:20", "merge=merge:1", "refine=refine:10"]}``.
    backbone : torch.nn.Module or None
        A network of your own from views (B, C, H, W), values in [0, 1], to features (B, D), in place of ResNet-9.
        It is copied, never changed.
    freeze_backbone : bool
        Train the heads only.
    min_confidence : float
        Images whose confidence is lower belong nowhere: their label is -1.
    device : str
        "cuda", "mps" or "cpu"; "auto" takes the first of them that is there.
    n_threads : int or None
        CPU threads; None takes what the machine offers.
    random_state : int, RandomState or None
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    labels_ : (N,) cluster of every training image, 0 being the largest
    probabilities_ : (N,) confidence of every label: the probability that an augmented view gets the same cluster
    n_clusters_ : number of clusters found
    cluster_info_ : list of one dict per cluster: size, surprise, nats (-log p), agreement of the views
    merge_tree_ : list of joins (kept, gone, phi), weakest boundary first
    history_ : list of one dict per step
    quarantine_ : list of (file, reason) for pictures that could not be read
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
        max_clusters: int = 64,
        n_clusters: int | None = None,
        preset: presets.PresetName = "fast",
        search: SearchName | None = None,
        n_init: int | None = None,
        augmentation: Literal["auto", "mnist", "fashion-mnist", "usps", "digits"] = "auto",
        image_shape: tuple[int, ...] | None = None,
        image_size: int | None = None,
        color: Color = "auto",
        settings: Mapping[str, Any] | None = None,
        backbone: nn.Module | None = None,
        freeze_backbone: bool = False,
        min_confidence: float = 0.0,
        device: str = "auto",
        n_threads: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.max_clusters = max_clusters
        self.n_clusters = n_clusters
        self.preset = preset
        self.search = search
        self.n_init = n_init
        self.augmentation = augmentation
        self.image_shape = image_shape
        self.image_size = image_size
        self.color = color
        self.settings = settings
        self.backbone = backbone
        self.freeze_backbone = freeze_backbone
        self.min_confidence = min_confidence
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

        X: (N, H, W), (N, H, W, C) or (N, C, H, W) arrays or tensors, (N, values) with ``image_shape``, or paths.
        """
        if not 0 <= self.min_confidence <= 1:
            raise ValueError(f"min_confidence is {self.min_confidence}; it must lie in 0..1")
        given = first_input(self, X)
        check_clusterable(ImageStore(given.images), "X")
        config = self._config(len(given.images), given.shape)
        devices.check(config.device)
        # A backbone may draw from torch's global generator (dropout): what it draws follows from a start's seed too.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            trainer = Trainer(given.images, config, backbone=self._backbone(given.shape, config))
            history = [asdict(record) for record in self._train(trainer)]
        finished = session.finish(trainer)
        names = [str(name) for name in self.feature_names_in_] if hasattr(self, "feature_names_in_") else None
        given = replace(given, images=given.images[:0])
        self._take(Fitted(*finished, given, self.n_features_in_, names, history))
        return self

    def fit_predict(self, X: Any, y: Any = None, **kwargs: Any) -> Labels:
        """Find the clusters of images X and return ``labels_``."""
        labels: Labels = super().fit_predict(X, y, **kwargs)
        return labels

    def predict(self, X: Any) -> Labels:
        """The cluster of each image, -1 where the confidence is below ``min_confidence``. (N,)"""
        return self._each(X, self._labels, -1)

    def predict_proba(self, X: Any) -> Floats:
        """The probability of every cluster. (N, n_clusters_)"""
        return self._each(X, lambda part: part.probabilities[:, : self.n_clusters_].numpy(), 0)

    def confidence(self, X: Any) -> Floats:
        """The confidence of each image's cluster: the probability that an augmented view gets it too. (N,)"""
        return self._each(X, lambda part: part.confidence.numpy(), 0)

    def transform(self, X: Any) -> Floats:
        """The embedding of each image: the network's features, mean of both views. (N, D)"""
        return self._each(X, lambda part: part.embedding.numpy(), np.nan)

    def score(self, X: Any, y: Any = None) -> float:
        """Orderliness Ω of the two views' clusters: at least 1, higher is better; ``y`` is ignored."""
        groups = torch.tensor(self._model().groups)
        readings = [(part.view_i, part.view_j) for part in self.model_.read(self._again(X).images)]
        labels_i, labels_j = (groups[torch.cat(part)] for part in zip(*readings, strict=True))
        return float(surprise.orderliness(surprise.joint_counts(labels_i, labels_j, len(groups))))

    def cut(self, n_clusters: int | None = None) -> Self:
        """Read the merge tree at another number of clusters, without training. None: where it was cut by itself."""
        model = self._model()
        clusters = model.merged.clusters if n_clusters is None and model.merged is not None else n_clusters
        if clusters is not None:
            self._take(replace(self.fitted_, model=model.cut(clusters)))
        return self

    def save(self, path: str | Path) -> None:
        """Write everything to one file: weights, settings, labels. No code is in it: see ``load``."""
        self._model()
        write_atomically(Path(path), to_bytes(self.fitted_, self.get_params(deep=False)))

    @classmethod
    def load(cls, path: str | Path, backbone: nn.Module | None = None) -> Self:
        """Read what ``save`` wrote. A model with a backbone needs a module of the same kind again."""
        if not Path(path).is_file():
            raise ValueError(f"there is no model file {str(path)!r}; give a file that save() wrote")
        return cls._loaded(Path(path).read_bytes(), str(path), backbone)

    def export_onnx(self, path: str | Path) -> None:
        """Write one ONNX file from raw images (uint8) to cluster and confidence."""
        onnxfile.export(self._model(), Path(path))

    @classmethod
    def _loaded(cls, content: bytes, name: str, backbone: nn.Module | None) -> Self:
        fitted, params = from_bytes(content, name, backbone)
        estimator = cls(**params | {"backbone": backbone})
        estimator._take(fitted)
        return estimator

    def __getstate__(self) -> dict[str, Any]:
        params = self.get_params(deep=False)
        return {"params": params, "fitted": to_bytes(self.fitted_, params) if hasattr(self, "fitted_") else None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["params"])  # type: ignore[misc]
        if state["fitted"] is not None:
            self._take(from_bytes(state["fitted"], "in the pickle", self.backbone)[0])

    def _take(self, fitted: Fitted) -> None:
        """Everything that was learned, as scikit-learn wants it."""
        self.fitted_ = fitted
        self.model_: Model = fitted.model
        prediction = self.model_.name(fitted.reading)
        self.labels_: Labels = fitted.given.spread(self._labels(prediction), -1)
        self.probabilities_: Floats = fitted.given.spread(prediction.confidence.numpy(), 0)
        self.n_clusters_ = self.model_.clusters
        columns = ("cluster", "size", "surprise", "nats", "agreement", "surprising")
        table = judge(self.model_, fitted.reading, None, both=True).clusters
        self.cluster_info_ = [{name: getattr(row, name) for name in columns} for row in table]
        self.merge_tree_ = [] if self.model_.merged is None else list(self.model_.merged.joins)
        self.history_ = fitted.history
        self.quarantine_ = fitted.given.quarantine
        self.n_features_in_ = fitted.features_in
        if fitted.feature_names is not None:
            self.feature_names_in_ = np.array(fitted.feature_names, dtype=object)
        self._n_features_out = self.model_.labeler.network.head.in_features

    def _labels(self, prediction: Prediction) -> Labels:
        sure = prediction.confidence >= self.min_confidence
        labels: Labels = torch.where(sure, prediction.cluster, -1).numpy()
        return labels

    def _model(self) -> Model:
        check_is_fitted(self)
        return self.model_

    def _again(self, X: Any) -> Input:
        return later_input(self, X, self._model().shape, self.fitted_.given.scale)

    def _each(self, X: Any, look: Callable[[Prediction], Any], missing: float) -> npt.NDArray[Any]:
        """What ``look`` makes of the predictions for all images; ``missing`` for files that cannot be read."""
        given = self._again(X)
        return given.spread(np.concatenate([look(part) for part in self.model_.predict(given.images)]), missing)

    def _train(self, trainer: Trainer) -> Iterator[Record]:
        """Work through the schedule, with a progress bar if wanted."""
        with ProgressDisplay(Console(quiet=not self.verbose), trainer.total, 0) as show:
            for record in trainer.run():
                show(record)
                yield record
                if trainer.next_seed is not None:
                    torch.manual_seed(trainer.next_seed)

    def _config(self, images: int, shape: tuple[int, int, int]) -> Config:
        given = self.backbone is not None
        base = presets.resolve(self.preset, self.search, self.augmentation, images, shape, backbone=given)
        base = replace(
            base,
            starts=base.starts if self.n_init is None else whole_number("n_init", self.n_init),
            network=replace(base.network, clusters=whole_number("max_clusters", self.max_clusters)),
            merge=replace(base.merge, clusters=whole_number("n_clusters", self.n_clusters or 0)),
        )
        config = configfile.overlay(base, dict(self.settings or {}))
        return replace(
            config, seed=seed_of(self.random_state), device=self.device, threads=self.n_threads or available_threads()
        )

    def _backbone(self, shape: tuple[int, int, int], config: Config) -> Backbone | None:
        if self.backbone is None:
            return None
        channels, height, width = shape
        scale = config.views.upsample
        return Backbone.probe(self.backbone, self.freeze_backbone, (channels, height * scale, width * scale))
