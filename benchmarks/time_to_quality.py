"""How long until which quality? Whole runs of this version and of version 0.1, and NMI along the run.

    python benchmarks/time_to_quality.py [--data digits usps mnist fashion-mnist] [--seeds 0] [--threads 2]
        [--data-dir FOLDER] [--old 01faa04] [--rivals] [--rivals-python PYTHON]
        [--figure docs/assets/time-to-quality.svg]

- whole: ``cts fit NAME`` from its start to its end, page included, by this version and by the commit ``--old`` (version
  0.1; it is checked out into a temporary folder). They take turns. ACC, NMI and ARI are those of `cts evaluate`, on the
  test split where there is one. ``--old ''`` leaves the old version out.
- points: the same run once more, in this process. At growing intervals the clock is stopped and NMI is computed of what
  the search holds at that moment, on 5,000 training images; before clusters are merged that is the middle head. The
  clock starts with the process, so imports count.
- rivals: EVoC and UMAP + HDBSCAN as in ``rivals.py``, on as many threads. Compiling is not timed.

Nothing else should run meanwhile: ``load`` is the load average at the start. Rows are appended to
benchmarks/results/time_to_quality.csv; ``--figure`` draws all of its rows (the last of each kind), ``--only-figure``
draws without running anything.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import rivals
import rows
from rival_process import RIVALS
from zoo_summary import METHODS

DATA = ("digits", "usps", "mnist", "fashion-mnist")
SAMPLE = 5_000
"""Training images on which the points along a run are computed."""
INTERVAL = 1.15
"""Factor between the times of two points."""
FIRST = 5.0
"""Seconds before the first point."""


SHOWN = {"current": "this version, whole", "version 0.1": "version 0.1, whole", **METHODS}
"""Names in the figure."""


class Job(NamedTuple):
    """One data set with one seed."""

    data: str
    seed: int
    threads: int
    data_dir: Path | None

    @property
    def words(self) -> list[str]:
        """Flags that both versions understand."""
        place = [] if self.data_dir is None else ["--data-dir", str(self.data_dir)]
        return [self.data, *place]


@contextlib.contextmanager
def checked_out(commit: str) -> Iterator[Path | None]:
    """The sources of a commit in a temporary folder; None for an empty name."""
    if not commit:
        yield None
        return
    root = Path(__file__).parent.parent
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--detach", str(tree), commit], cwd=root, check=True)
        try:
            yield tree / "src"
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=root, check=True)


def program(source: Path, *words: object) -> str:
    """What a command of the program in ``source`` prints."""
    command = [sys.executable, "-m", "converge_to_surprise", *map(str, words)]
    environment = os.environ | {"PYTHONPATH": str(source)}
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


def whole(job: Job, source: Path, version: str, extra: list[str]) -> dict[str, Any]:
    """The row of a whole run."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        began = time.perf_counter()
        program(source, "fit", *job.words, "--out", run, "--seed", job.seed, "--threads", job.threads, *extra)
        seconds = time.perf_counter() - began
        found = json.loads(program(source, "evaluate", run, *job.words, "--json").splitlines()[-1])
    quality = {name: found.get(f"{name}_both", found.get(name)) for name in ("acc", "nmi", "ari", "n_clusters")}
    return _row("whole", version, job, {"seconds": seconds, **quality, "load": load})


def points(job: Job, extra: list[str]) -> list[dict[str, Any]]:
    """NMI along a run, in a process of its own."""
    words = [sys.executable, __file__, "--points", json.dumps([*job[:3], str(job.data_dir or "")]), "--", *extra]
    ended = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    found: list[dict[str, Any]] = json.loads(ended.stdout.splitlines()[-1])
    return [_row("point", "current", job, point) for point in found]


def follow(job: Job, extra: list[str]) -> list[dict[str, float]]:
    """The points of a run in this process."""
    began = time.perf_counter()
    from converge_to_surprise import use_passive_threads

    use_passive_threads()
    import torch

    from converge_to_surprise.cli.fit import effective_config, parse_words
    from converge_to_surprise.core import metrics
    from converge_to_surprise.data import datasets
    from converge_to_surprise.model.inference import label_views
    from converge_to_surprise.search.restarts import Restarts

    train = datasets.load(job.data, job.data_dir).train
    assert train.labels is not None
    request = parse_words([*job.words, "--out", "unused", "--seed", str(job.seed), *extra])
    config = effective_config(request, (len(train), *train.shape))
    search = Restarts(train.images, replace(config, threads=job.threads))
    sample = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:SAMPLE]
    images, classes = train.images[sample], train.labels[sample.numpy()]
    found, due, stopped = list[dict[str, float]](), FIRST, 0.0
    for _ in search.run():
        seconds = time.perf_counter() - began - stopped
        if seconds < due and search.step < search.total:
            continue
        network = search.trainer.network
        labels = label_views(network, images, search.config.views)[0].reshape(len(images), -1)[:, network.heads // 2]
        found.append({"seconds": seconds, "nmi": metrics.scores(labels.numpy(), classes)["nmi"], "step": search.step})
        stopped = time.perf_counter() - began - seconds
        due = max(seconds, due) * INTERVAL
    return found


def rival(job: Job, method: str, python: str | None) -> dict[str, Any]:
    """The row of another method."""
    seed = None if method == "umap+hdbscan" and job.threads > 1 else job.seed
    found = rivals.measure(rivals.Job(method, job.data, seed, job.threads), job.data_dir, python)
    kept = ("seconds", "acc", "nmi", "ari", "n_clusters", "load")
    return _row("whole", method, job, {name: found[name] for name in kept})


def _row(kind: str, version: str, job: Job, figures: dict[str, Any]) -> dict[str, Any]:
    return {"kind": kind, "method": version, "data": job.data, "seed": job.seed, "threads": job.threads, **figures}


def draw(file: Path, figure: Path) -> None:
    """NMI against wall-clock time: a panel for each data set, from the last rows of each method."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import pandas as pd

    from converge_to_surprise.experiments.result_tables import TITLES

    table = pd.read_csv(file)
    names = [name for name in DATA if name in set(table["data"])]
    canvas, axes = plt.subplots(1, len(names), figsize=(4 * len(names), 3.4), squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        own = table[table["data"] == name]
        along = own[own["kind"] == "point"]
        along = along[along["date"] == along["date"].max()]
        axis.plot(along["seconds"], along["nmi"], color="C0", label="this version, along the run")
        ended = own[own["kind"] == "whole"].drop_duplicates(["method", "seed"], keep="last")
        for number, (method, runs) in enumerate(ended.groupby("method")):
            axis.scatter(
                runs["seconds"], runs["nmi"], color=f"C{number}", marker="o", label=SHOWN[str(method)], zorder=3
            )
        axis.set(title=TITLES[name], xscale="log", xlabel="seconds, wall clock", ylim=(0, 1))
    axes[0][0].set_ylabel("NMI")
    axes[0][-1].legend(fontsize="small")
    canvas.tight_layout()
    canvas.savefig(figure)


def main() -> None:
    parser = rows.parser(__doc__, "time_to_quality.csv", seeds=[0], threads=2)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--old", default="01faa04", help="commit of version 0.1; empty: without it")
    parser.add_argument("--rivals", action="store_true", help="also EVoC and UMAP + HDBSCAN")
    parser.add_argument("--rivals-python", help="interpreter that has evoc, umap-learn and hdbscan")
    parser.add_argument("--figure", type=Path, help="draw the rows into this file (.svg, .png)")
    parser.add_argument("--only-figure", action="store_true", help="run nothing")
    parser.add_argument("--points", help="(used by the program itself)")
    parser.add_argument(
        "extra", nargs="*", help="after --: more words for `cts fit` of both versions, such as a schedule"
    )
    options = parser.parse_args()
    if options.points:
        name, seed, threads, place = json.loads(options.points)
        print(json.dumps(follow(Job(name, seed, threads, Path(place) if place else None), options.extra)))
        return
    if not options.only_figure:
        run_all(options)
    if options.figure is not None:
        draw(options.save, options.figure)


def run_all(options: Any) -> None:
    """All runs; a row is saved as soon as it is known."""
    current = Path(__file__).parent.parent / "src"

    def keep(found: list[dict[str, Any]]) -> None:
        rows.append_rows(options.save, found)
        shown = {name: value for name, value in found[-1].items() if name != "step"}
        print(
            {name: round(value, 3) if isinstance(value, float) else value for name, value in shown.items()}, flush=True
        )

    with checked_out(options.old) as old:
        for seed in options.seeds:
            for name in options.data:
                job = Job(name, seed, options.threads, options.data_dir)
                keep([whole(job, current, "current", options.extra)])
                if old is not None:
                    keep([whole(job, old, "version 0.1", options.extra)])
                if seed == options.seeds[0]:
                    keep(points(job, options.extra))
                    for method in RIVALS if options.rivals else ():
                        keep([rival(job, method, options.rivals_python)])


if __name__ == "__main__":
    main()
