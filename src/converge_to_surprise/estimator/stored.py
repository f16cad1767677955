"""Searches of the estimator on stored features instead of pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from ..config import Config
from ..data.store import ImageStore
from ..model.pretrained import PreprocessFlags, PretrainedBackbone, open_backbone
from ..runs.features import Prepared, backbone_features, prepare_embeddings
from ..runs.progress import CountDisplay
from .inputs import Input

if TYPE_CHECKING:
    from .clustering import SurpriseClustering


def named_backbone(estimator: SurpriseClustering) -> PretrainedBackbone | None:
    """The pre-trained backbone that the parameters name, if they name one."""
    source = estimator.backbone
    if not isinstance(source, str):
        return None
    return open_backbone(source, PreprocessFlags(size=estimator.backbone_size))


def prepared_features(
    estimator: SurpriseClustering, given: Input, config: Config, backbone: PretrainedBackbone | None
) -> Prepared | None:
    """The stored features that the search works on, or None if it works on pixels."""
    if config.views.stored:
        return prepare_embeddings(ImageStore(given.images))
    if backbone is None:
        return None
    with CountDisplay(Console(quiet=not estimator.verbose), "features of pictures", 0) as progress:
        return backbone_features(ImageStore(given.images), backbone, config, estimator.copies, progress)
