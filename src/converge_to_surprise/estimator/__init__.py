"""The scikit-learn estimator."""

from .clustering import SurpriseClustering

__all__ = ["SurpriseClustering"]
