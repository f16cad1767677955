"""At the end of a run every training image is labeled once, whatever is written afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.digit_run import CONFIG, write_source
from torch import Tensor

from converge_to_surprise.config import Config, Stage, Views
from converge_to_surprise.data import datasets
from converge_to_surprise.model import inference
from converge_to_surprise.model.network import ClusterNetwork
from converge_to_surprise.report.page import write_report
from converge_to_surprise.runs import session
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.search.record import Record

TINY = replace(
    CONFIG,
    schedule=(Stage("search", "relaxed", 2), Stage("merge", "merge", 1), Stage("refine", "refine", 1)),
)


class Labeled:
    """How often networks are run on each image after the last step; the calibration of confidences does not count."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.networks: dict[int, Counter[bytes]] = {}
        self.finishing = False
        genuine = inference.map_views

        def counted(
            network: ClusterNetwork, images: Tensor, settings: Views, function: Callable[[Tensor], Tensor]
        ) -> Iterator[tuple[Tensor, Tensor]]:
            if self.finishing:
                self.networks.setdefault(id(network), Counter()).update(_rows(images))
            return genuine(network, images, settings, function)

        monkeypatch.setattr(inference, "map_views", counted)


def _rows(images: Tensor) -> list[bytes]:
    return [image.numpy().tobytes() for image in images]


def finish(folder: Path, config: Config, monkeypatch: pytest.MonkeyPatch) -> tuple[Labeled, Counter[bytes]]:
    """Train and write the page; what was labeled after the last step, and the images."""
    source = write_source(folder)
    dataset = datasets.load(str(source))
    run = RunFolder(folder / "run")
    search = session.begin(run, dataset, session.Origin(str(source), "fast"), config)
    labeled = Labeled(monkeypatch)

    def watch(record: Record) -> None:
        labeled.finishing = record.step + 1 == search.total

    session.train(run, search, dataset, [watch])
    assert search.trainer.networks.unmerged is not None
    write_report(run, dataset.train)
    assert run.outputs.is_file()
    assert run.labels.is_file()
    assert run.report.is_file()
    return labeled, Counter(_rows(dataset.train.images))


@pytest.mark.slow
def test_the_final_network_labels_every_image_once_and_the_unmerged_one_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labeled, images = finish(tmp_path, TINY, monkeypatch)
    assert list(labeled.networks.values()) == [images]


@pytest.mark.slow
def test_of_several_initializations_none_is_labeled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was labeled when it was compared with the others."""
    labeled, _ = finish(tmp_path, replace(TINY, n_init=2), monkeypatch)
    assert labeled.networks == {}
