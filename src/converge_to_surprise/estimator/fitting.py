"""The fit of the estimator: its configuration, the search on pixels or on stored features, the verdict."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from ..config import Config, check_n_clusters, presets
from ..config import files as configfile
from ..config.kinds import describe_kind, for_kind
from ..config.settings import KindOption
from ..core.picture_kind import picture_kind
from ..data.store import ImageStore, check_clusterable
from ..model.assessment import evaluate
from ..model.backbone import Backbone
from ..model.judgment import explained_by_light, judge
from ..model.pretrained import PreprocessFlags, open_backbone
from ..model.pretrained.frozen import PretrainedBackbone
from ..model.verdict import Verdict
from ..runs.features import prepared_features
from ..runs.labels import KEEP
from ..runs.progress import ProgressDisplay
from ..search.chunking import check_device_memory
from ..search.memory_plan import check_fit_memory
from ..search.record import Record
from ..search.restarts import Fitted, Restarts
from ..search.threads import available_threads
from .inputs import Input, first_input
from .params import check_params, integer, seed_of
from .state import FittedState
from .tree import deepened

if TYPE_CHECKING:
    from .clustering import SurpriseClustering


def fit(estimator: SurpriseClustering, images: Any) -> FittedState:
    """Find the clusters of images, or of embeddings, with the parameters of an estimator."""
    check_params(estimator)
    pretrained = _named_backbone(estimator)
    side = None if pretrained is None else pretrained.identity.preprocess.size
    given = first_input(estimator, images, side)
    check_clusterable(ImageStore(given.images), "X")
    config = _config(estimator, given, side)
    check_n_clusters(config, len(given.images))
    # A backbone may draw from torch's global generator (dropout), which is seeded for every initialization.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        search = _search(estimator, given, config, pretrained)
        search.keep = KEEP
        check_device_memory(search.config, given.images.shape)
        history = [asdict(record) for record in _train(search, estimator.verbose)]
    fitted = deepened(search.finish(), search.images, config)
    if shortfall := fitted.shortfall:
        warnings.warn(shortfall, ConvergenceWarning, stacklevel=3)
    verdict = _judge(fitted, given, estimator.backbone is not None)
    names = [str(name) for name in getattr(estimator, "feature_names_in_", ())] or None
    given = replace(given, images=given.images[:0].clone())
    return FittedState(fitted, given, estimator.n_features_in_, names, history, verdict)


def _named_backbone(estimator: SurpriseClustering) -> PretrainedBackbone | None:
    """The pre-trained backbone that the parameters name, if they name one."""
    source = estimator.backbone
    if not isinstance(source, str):
        return None
    return open_backbone(source, PreprocessFlags(size=estimator.backbone_size))


def _config(estimator: SurpriseClustering, given: Input, backbone_side: int | None) -> Config:
    images, shape, own = len(given.images), given.shape, isinstance(estimator.backbone, nn.Module)
    base = presets.resolve(estimator.preset, estimator.search, estimator.augmentation, images, shape, backbone=own)
    kind = _kind(estimator, given.images)
    if estimator.input == "embeddings":
        base = presets.with_embeddings(base, images, shape[0])
    elif backbone_side is not None:
        base = presets.with_backbone(replace(base, kind=kind), backbone_side, images)
    elif estimator.preset == "fast" and kind != "auto" and not own:
        base = for_kind(base, kind)
    own_numbers = replace(
        base,
        n_init=base.n_init if estimator.n_init is None else integer("n_init", estimator.n_init),
        max_clusters=integer("max_clusters", estimator.max_clusters),
        n_clusters=None if estimator.n_clusters is None else integer("n_clusters", estimator.n_clusters),
        rounds=estimator.rounds if estimator.rounds == "auto" else integer("rounds", estimator.rounds),
    )
    config = configfile.overlay(own_numbers, dict(estimator.settings or {}))
    return replace(
        presets.keep_bound(config, base),
        kind=kind,
        seed=seed_of(estimator.random_state),
        device=estimator.device,
        threads=estimator.n_threads or available_threads(),
    )


def _kind(estimator: SurpriseClustering, images: torch.Tensor) -> KindOption:
    """What the pictures are: as the user says, or as they look."""
    asked: KindOption = configfile.overlay(Config(kind=estimator.kind), dict(estimator.settings or {})).kind
    own = isinstance(estimator.backbone, nn.Module)
    known = estimator.preset == "paper" or estimator.augmentation != "auto" or own or estimator.input == "embeddings"
    if asked != "auto" or known:
        return asked
    found = picture_kind(images)
    Console(quiet=not estimator.verbose).print(describe_kind(found, "kind"), markup=False, highlight=False)
    return found


def _search(
    estimator: SurpriseClustering, given: Input, config: Config, pretrained: PretrainedBackbone | None
) -> Restarts:
    """The search on pixels or on stored features."""
    store, console = ImageStore(given.images), Console(quiet=not estimator.verbose)
    prepared = prepared_features(store, pretrained, config, estimator.copies, console)
    if prepared is not None:
        stored = presets.on_features(config, prepared.items.shape[3])
        return Restarts(prepared.items, stored, encoder=prepared.encoder, statistics=prepared.statistics)
    check_fit_memory(given.images.shape, config, own_network=estimator.backbone is None)
    channels, height, width = given.shape
    scale, backbone = config.views.upsample, None
    if isinstance(estimator.backbone, nn.Module):
        shape = (channels, height * scale, width * scale)
        backbone = Backbone.probe(estimator.backbone, estimator.freeze_backbone, shape)
    return Restarts(given.images, config, backbone=backbone)


def _train(search: Restarts, verbose: bool) -> Iterator[Record]:
    """Work through the schedule, with a progress bar if ``verbose``."""
    with ProgressDisplay(Console(quiet=not verbose), search.total, 0) as show:
        for record in search.run():
            show(record)
            yield record
            if search.next_seed is not None:
                torch.manual_seed(search.next_seed)


def _judge(fitted: Fitted, given: Input, backbone: bool) -> Verdict:
    """The verdict on the clusters of the training images."""
    assessment = evaluate(fitted.model, fitted.outputs, None, both=True)
    kind, tree = fitted.model.input, fitted.model.merge_result
    explained = 0.0 if kind == "embeddings" else explained_by_light(given.images, assessment.labels_both)
    return judge(assessment, tree, explained, backbone, kind)
