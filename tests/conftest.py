"""What several test files need: small images with structure, and small settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Before torch is imported: the tests run in several processes, whose threads would wait for each other by spinning.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
from hypothesis import settings
from support.picture_run import fit_pictures, make_pictures
from torch import Tensor

from converge_to_surprise.config import Augmentation, Config, Evolution, Network, Stage
from converge_to_surprise.data import datasets
from converge_to_surprise.data.synthetic import striped_images

# A busy machine is no reason for a test to fail.
settings.register_profile("steady", deadline=None)
settings.load_profile("steady")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Browser tests that were skipped are announced: a green line must not hide that no page was opened."""
    skipped = [report for report in terminalreporter.getreports("skipped") if "browser" in report.keywords]
    if skipped:
        install = "apt install chromium (or put another Chromium on the PATH) and pip install playwright"
        text = f"{len(skipped)} browser tests did NOT run: Chromium or playwright is missing. To run them: {install}"
        terminalreporter.write_line(text, red=True, bold=True)


@pytest.fixture(scope="session", autouse=True)
def _no_network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test may reach for the network, or for data or decoded pictures that happen to lie on this machine."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("this test must not reach for the network")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "fetch_openml", refuse)
        patch.delenv("CTS_DATA", raising=False)
        patch.setenv("CTS_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        yield


@pytest.fixture(scope="session")
def bars() -> Tensor:
    """uint8 (120, 1, 8, 8)"""
    return striped_images(120)[0]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 60 striped pictures in folders of their classes, and two files that are no pictures."""
    return make_pictures(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> Path:
    """A quick run of them by the command line."""
    return fit_pictures(pictures, tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="session")
def small() -> Config:
    """A run of a second: evolution with consolidation, the way the paper does it."""
    return Config(
        threads=1,
        schedule=(Stage("explore", "evolution", 2), Stage("strong", "evolution", 2, passes=2, every=1)),
        max_clusters=6,
        network=Network(width=2, min_active_outputs=2),
        evolution=Evolution(population=4, batch_size=60, ramp_epochs=2),
        augmentation=Augmentation(rotation=10, crop=1, brightness=0.2, contrast=0.2),
    )
