"""The scikit-learn face."""

from .clustering import SurpriseClustering

__all__ = ["SurpriseClustering"]
