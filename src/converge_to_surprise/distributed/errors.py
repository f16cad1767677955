"""Errors of groups of processes, importable without torch."""

from __future__ import annotations


class WorkerLost(Exception):  # noqa: N818 - the run is saved
    """Another process is gone; the run is saved."""
