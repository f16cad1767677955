"""Make the tables of README.md and docs/ from the CSV files of benchmarks/results/.

    python benchmarks/readme_table.py [--check] [--results FOLDER] [PAGE ...]

A table stands between two comments, ``<!-- NAME: made by benchmarks/readme_table.py -->`` and ``<!-- end of NAME -->``,
on any of the pages; NAME is one of ``TABLES``. Of several rows about the same thing the last one counts. With
``--check`` nothing is written: the exit code is 1 if a table is not up to date.
"""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hypotheses_tables
import numpy as np
import pandas as pd
import rows
import zoo_summary as zoo_rows

from converge_to_surprise.experiments import result_tables as tables
from converge_to_surprise.experiments.plan import FULL, VARIANTS
from converge_to_surprise.experiments.result_tables import (
    ABSENT,
    METRICS,
    TITLES,
    duration,
    markdown,
    mean_text,
    percent,
)

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"(<!-- (?P<name>[\w-]+): made by benchmarks/readme_table\.py -->\n).*?(<!-- end of (?P=name) -->)", re.DOTALL
)
SECOND_INITIALIZATION = 1000
"""Initialization n of seed s is the run of seed s + 1000 (n - 1)."""
THREE = "ACC / NMI / ARI"
PUBLISHED_HEADING = f"the paper: {THREE}, K̂"
PHOTO_METHODS = {**zoo_rows.METHODS, "k-means, K given": "k-means, K given"}
"""Titles of the methods of benchmarks/photos.py."""


def newest(folder: Path, name: str, *keys: str) -> pd.DataFrame:
    """The last row of every combination of the keys' values."""
    return pd.read_csv(folder / f"{name}.csv").drop_duplicates(list(keys), keep="last")


def by_dataset(found: pd.DataFrame, column: str = "dataset") -> list[tuple[str, pd.DataFrame]]:
    """Rows by data set, in the order of ``TITLES``."""
    return [(name, group) for name in TITLES if len(group := found[found[column] == name])]


def three(group: pd.DataFrame, suffix: str = "") -> str:
    """ACC / NMI / ARI in %, as means."""
    return " / ".join(f"{100 * group[f'{name}{suffix}'].mean():.1f}" for name in METRICS)


def scores(group: pd.DataFrame) -> list[str]:
    """ACC, NMI, ARI, the number of clusters and the seeds."""
    seeds = tables.seeds_text(group["seed"].dropna().astype(int))
    return [*(percent(group[name]) for name in METRICS), mean_text(group["n_clusters"]), seeds]


def published(dataset: str) -> str:
    """ACC / NMI / ARI and the number of clusters in the paper."""
    found = pd.read_csv(tables.PUBLISHED, index_col=["method", "variant", "dataset"])
    if (tables.PAPER, FULL, dataset) not in found.index:
        return ABSENT
    row = found.loc[[(tables.PAPER, FULL, dataset)]].iloc[0]
    means = " / ".join(f"{row[name]:.1f}" for name in METRICS)
    return f"{means}, {row['n_clusters']:.1f} ± {row['n_clusters_std']:.1f}"


def table1(folder: Path) -> str:
    """A line per data set, the numbers of version 0.1 and of the paper beside ours."""
    before = newest(folder, "table1-0.1", "dataset", "seed", "n_init")
    lines = []
    for dataset, group in by_dataset(newest(folder, "table1", "dataset", "seed")):
        earlier = before[(before["dataset"] == dataset) & (before["n_init"] > 1)]
        then = f"{three(earlier)}, {earlier['n_clusters'].mean():.1f}"
        lines.append([TITLES[dataset], *scores(group), duration(group["seconds"]), then, published(dataset)])
    header = ["data", "ACC", "NMI", "ARI", "K̂", "seeds", "time", f"version 0.1: {THREE}, K̂", PUBLISHED_HEADING]
    return markdown(header, lines)


def results(folder: Path) -> str:
    """Version 0.1: a line per data set beside the paper's numbers, and one for the first initializations alone."""
    lines = []
    for dataset, group in by_dataset(newest(folder, "table1-0.1", "dataset", "seed", "n_init")):
        single, selected = group[group["n_init"] == 1], group[group["n_init"] > 1]
        first = single[single["seed"] < SECOND_INITIALIZATION]
        paper = published(dataset)
        if len(selected):
            each = f"{selected['n_init'].iloc[0]} × {duration(single['seconds'])}"
            lines.append([TITLES[dataset], *scores(selected), each, three(selected, "_both"), paper])
        if len(first):
            title = TITLES[dataset] + (", one initialization" if len(selected) else "")
            lines.append(
                [title, *scores(first), duration(first["seconds"]), ABSENT, ABSENT if len(selected) else paper]
            )
    header = ["data", "ACC", "NMI", "ARI", "K̂", "seeds", "time per run", f"both views: {THREE}", PUBLISHED_HEADING]
    return markdown(header, lines)


def ablation(folder: Path) -> str:
    """A line per variant, a column per data set."""
    sets = by_dataset(newest(folder, "ablation", "dataset", "variant", "seed"))

    def text(group: pd.DataFrame) -> str:
        return f"{three(group)}, {mean_text(group['n_clusters'])} (n={len(group)})" if len(group) else ABSENT

    most = max((group["variant"].unique() for _, group in sets), key=len)  # in the order of the file
    lines = [
        [VARIANTS[variant].title.partition(" (")[0], *(text(group[group["variant"] == variant]) for _, group in sets)]
        for variant in dict.fromkeys([*most, *(variant for _, group in sets for variant in group["variant"])])
    ]
    return markdown([f"{THREE}, K̂ (seeds)", *(TITLES[name] for name, _ in sets)], lines)


def rivals(folder: Path) -> str:
    """Other methods that are not given the number of clusters, with ours."""
    ours = newest(folder, "table1", "dataset", "seed")
    lines = []
    for dataset, group in by_dataset(newest(folder, "rivals", "method", "data", "seed", "threads"), "data"):
        for method, runs in group.groupby("method", sort=False):
            one, two = (runs[runs["threads"] == count] for count in (1, 2))
            times = [duration(times) for times in (one["cpu_seconds"], one["seconds"], two["seconds"])]
            noise = f"{100 * one['noise'].mean():.1f} %"
            lines.append([TITLES[dataset], zoo_rows.METHODS[str(method)], *scores(one), noise, *times])
        own = ours[ours["dataset"] == dataset]
        if len(own):
            threads = own["command"].str.extract(r"--threads (\d+)", expand=False)
            times = [duration(own["seconds"][threads == count]) for count in ("1", "2")]
            lines.append([TITLES[dataset], tables.OURS, *scores(own), ABSENT, ABSENT, *times])
    header = "data|method|ACC|NMI|ARI|K̂|seeds|noise|CPU time|time, one thread|two threads"
    return markdown(header.split("|"), lines)


def photos(folder: Path) -> str:
    """Clusterings of folders of pictures on the features of one backbone, a line per folder and method."""
    lines = []
    if (folder / "photos.csv").exists():
        found = newest(folder, "photos", "data", "method", "seed")
        for data, (method, title) in itertools.product(dict.fromkeys(found["data"]), PHOTO_METHODS.items()):
            group = found[(found["data"] == data) & (found["method"] == method)]
            if len(group):
                lines.append([str(data), title, *scores(group), duration(group["seconds"])])
    return markdown(["pictures", "method", "ACC", "NMI", "ARI", "K̂", "seeds", "time"], lines)


def subsets(folder: Path) -> str:
    """How many clusters are found among other numbers and sizes of classes, with one initialization."""
    found = newest(folder, "subsets", "subset", "seed", "n_init")
    first = found[(found["n_init"] == 1) & (found["seed"] < SECOND_INITIALIZATION)]
    lines = []
    for name, group in first.groupby("subset", sort=False):
        sizes = [int(size) for size in group["class_sizes"].iloc[0].split()]
        count, seeds = scores(group)[-2:]
        lines.append([str(name), str(len(sizes)), f"{min(sizes)}-{max(sizes)}", count, three(group), seeds])
    return markdown(["digits", "classes", "images of a class", "K̂", THREE, "seeds"], lines)


def unequal(folder: Path) -> str:
    """Both initializations of the digits with classes of unequal sizes, and which one was selected."""
    found = newest(folder, "subsets", "subset", "seed", "n_init")
    found = found[found["subset"] == "unequal classes"]
    single = found[found["n_init"] == 1].set_index("seed")

    def text(seed: int) -> str:
        row = single.loc[[seed]]
        return f"{three(row)}, K̂ {row['n_clusters'].iloc[0]}, balance {row['balance'].iloc[0]:.3f}"

    lines = []
    for seed, selected in found.loc[found["n_init"] == 2, ["seed", "selected_seed"]].to_numpy().tolist():
        which = "first" if seed == selected else "second"
        lines.append([str(seed), text(seed), text(seed + SECOND_INITIALIZATION), which])
    return markdown(["seed", "first initialization", "second initialization", "selected"], lines)


def zoo(folder: Path) -> str:
    """What each method finds on each set of the zoo."""
    return zoo_rows.per_set(zoo_rows.read(folder / "zoo.csv"))


def zoo_summary(folder: Path) -> str:
    """How well the number of clusters is found on both halves of the zoo."""
    return zoo_rows.summary(zoo_rows.read(folder / "zoo.csv"))


def folders(folder: Path) -> str:
    """ACC of held-out images when the digits are read from files."""
    found = newest(folder, "folders", "kind", "form", "seed")
    lines = []
    for kind, group in found.groupby(["kind", "form"], sort=False):
        acc, count = percent(group["held_out_acc"]), mean_text(group["held_out_n_clusters"])
        lines.append([*map(str, kind), acc, count, tables.seeds_text(group["seed"])])
    return markdown(["digits", "as", "ACC of held-out images", "K̂", "seeds"], lines)


def faults(folder: Path) -> str:
    """The faults of real runs, and how many runs lost anything."""
    names = ["tried", "survived", "lost"]
    found = newest(folder, "faults", "fault").set_index("fault")[names]
    found.loc["all"] = found.sum()
    return markdown(["fault", *names], [[str(row[0]), *map("{:,}".format, row[1:])] for row in found.itertuples()])


def fuzz(folder: Path) -> str:
    """How many damaged files were accepted, and how many crashed the program."""
    names = ["examples", "accepted", "crashes"]
    found = newest(folder, "fuzz", "file")[["file", *names, "slowest_seconds"]]
    lines = [
        [file, *map("{:,}".format, counts), f"{slowest:g}"] for file, *counts, slowest in found.to_numpy().tolist()
    ]
    return markdown(["file", *names, "slowest, s"], lines)


STAGES = {
    "search": ("one step of the search, ms", "step_cpu_seconds", 1000, 1),
    "refine": ("one step of refining, ms", "step_cpu_seconds", 1000, 1),
    "fingerprint": ("fingerprint, s", "cpu_seconds", 1, 3),
    "opening": ("opening, of files: decoding, s", "cpu_seconds", 1, 1),
    "neighbors by pixels": ("neighbors by pixels, s", "cpu_seconds", 1, 1),  # of rows before edges were compared
    "neighbors by edges": ("neighbors by edges, s", "cpu_seconds", 1, 1),
    "clusterings of the graph": ("eight clusterings of their graph, s", "cpu_seconds", 1, 1),
    "merge": ("merging, s", "cpu_seconds", 1, 1),
    "neighbors by features": ("neighbors by features, s", "cpu_seconds", 1, 1),
    "labeling": ("labeling by both networks, s", "cpu_seconds", 1, 1),
    "finishing": ("judging and writing labels, s", "cpu_seconds", 1, 1),
    "whole run": ("peak memory of its own, MB", "megabytes", 1, 0),
}
"""What is shown of a stage: title, column, factor, decimal places."""
SOURCES = {"npy": "an .npy file", "files": "a folder of PNG files"}


def bigdata(folder: Path) -> str:
    """Time and memory by the number of images, and how they grow, for each size of images.

    The figures of a number of images are those of the last command that went through it.
    """
    every = pd.read_csv(folder / "bigdata.csv")
    tables = []
    for (side, channels, source), runs in every.groupby(["side", "channels", "source"]):
        title = f"Images of {side:.0f}×{side:.0f}{' in color' if channels == 3 else ''} from {SOURCES[str(source)]}"
        tables.append(f"{title}:\n\n{_bigdata(runs.drop_duplicates(['images', 'stage'], keep='last'))}")
    return "\n\n".join(tables)


def _bigdata(found: pd.DataFrame) -> str:
    lines, sizes = [], sorted(found.loc[found["stage"] == "whole run", "images"])
    for stage, (title, column, factor, digits) in STAGES.items():
        used = found[found["stage"] == stage].set_index("images").sort_index()[column]
        if used.empty:  # of a stage that the runs did not have
            continue
        shown = [f"{factor * used[size]:.{digits}f}" if size in used else ABSENT for size in sizes]
        lines.append([title, *shown, *growth(used.index.tolist(), used.tolist(), column == "cpu_seconds")])
    return markdown(["images", *(f"{size:,}" for size in sizes), "exponent", "fixed + per image"], lines)


def growth(sizes: Sequence[int], numbers: Sequence[float], passes: bool) -> list[str]:
    """Slope of log(value) over log(images) and, for passes over all images, the line with the least relative errors."""
    if len(sizes) < 2:
        return [ABSENT, ABSENT]
    exponent = float(np.polyfit(np.log(sizes), np.log(numbers), 1)[0])
    if not passes:
        return [f"{exponent:.2f}", ABSENT]
    slope, fixed = np.polyfit(sizes, numbers, 1, w=1 / np.array(numbers))
    micros = 1e6 * float(slope)
    return [f"{exponent:.2f}", f"{round(float(fixed), 1) + 0.0:.1f} s + {micros:{'.0f' if micros >= 10 else '.2g'}} µs"]


SPEED = {
    "relaxed-step": {
        "bare forward and backward pass": "bare forward and backward pass, best batch size",
        "step": "whole step: partners, views, augmentation, score, backward pass, optimizer",
        "step / bare": "ratio",
        "bare, the paper's network": "bare, the paper's network",
        "bare, torch.compile": "bare, `torch.compile`",
        "bare, 2 processes of one thread": "bare, two processes of one thread",
    },
    "evolution-step": {
        "bare forward pass": "bare forward pass, best settings",
        "update": "whole update",
        "update / bare": "ratio",
        "bare forward pass, bfloat16": "bare forward pass in bfloat16",
        "update, bfloat16": "whole update in bfloat16",
        "update / bare, bfloat16": "ratio in bfloat16",
        "update, bfloat16 / float32": "update in bfloat16 / in float32",
        "peak memory": "peak memory",
    },
    "predict": {
        "from an array": "images of 28x28 from an array",
        "array / bare": "as a share of the bare network's forward pass on both views",
        "from PNG files": "from PNG files",
        "peak memory for 10,000 images": "peak memory for 10,000 images",
        "peak memory for 200,000 images": "peak memory for 200,000 images",
    },
    "decoding": {
        **{f"{kind}: ours": f"{kind} files, checked, in order" for kind in ("JPEG", "PNG", "HEIC")},
        **{f"{kind}: ratio": f"{kind} files, as a share of the bare loop" for kind in ("JPEG", "PNG", "HEIC")},
        "first line of cts fit FOLDER": "first line of `cts fit FOLDER` in a terminal",
    },
    "processes": {
        "relaxed: 2 processes / one": "relaxed: two processes of one thread against one of two",
        "evolution: 2 processes / one": "evolution: two processes of one thread against one of two",
    },
}
"""For each benchmark of speed, the figures on two threads that are shown: their names in the file and on the page."""


def speed(name: str) -> Callable[[Path], str]:
    """The table of one benchmark of speed."""

    def made(folder: Path) -> str:
        found = newest(folder, "speed", "benchmark", "what", "threads")
        found = found[(found["benchmark"] == name.replace("-", "_")) & (found["threads"] == 2)].set_index("what")
        lines = [[title, _quantity(found.loc[what])] for what, title in SPEED[name].items() if what in found.index]
        return markdown(["2 threads", ""], lines)

    return made


def _quantity(row: Any) -> str:
    value, unit = row["value"], row["unit"]
    return f"{value:.2f}" if unit == "ratio" else f"{value:,.{0 if value >= 100 else 1}f} {unit}"


def time_to_quality(folder: Path) -> str:
    """Whole runs of this version, of version 0.1 and of the rivals on the same threads, a line per data set."""
    found = newest(folder, "time_to_quality", "kind", "method", "data", "seed")
    lines = []
    for data, group in by_dataset(found[found["kind"] == "whole"], "data"):
        runs = [group[group["method"] == method] for method in ("current", "version 0.1", "evoc", "umap+hdbscan")]
        cells = [
            f"{run['seconds'].mean():,.0f} s, {100 * run['nmi'].mean():.1f}" if len(run) else ABSENT for run in runs
        ]
        own, old = (run["seconds"].mean() for run in runs[:2])
        lines.append([TITLES[data], *cells[:2], f"{own / old:.2f}" if len(runs[1]) else ABSENT, *cells[2:]])
    header = "2 threads: seconds, NMI|this version|version 0.1|ratio of the times|EVoC|UMAP + HDBSCAN"
    return markdown(header.split("|"), lines)


def novelty(folder: Path) -> str:
    """What novelty and confidence find of foreign images, and how well confidence is calibrated."""
    lines = []
    for _, row in newest(folder, "novelty", "case", "foreign", "seed").iterrows():
        shares = [f"{100 * row[name]:.1f} %" for name in ("found", "found_confidence", "own_refused")]
        areas = [f"{row[name]:.3f}" for name in ("auroc", "auroc_confidence")]
        lines.append([row["case"], row["foreign"], *areas, *shares, f"{row['ece']:.3f}"])
    header = "run on|foreign|AUROC, novelty|AUROC, confidence|found, novelty|found, confidence|own above 0.95|ECE"
    return markdown(header.split("|"), lines)


def evolution(folder: Path) -> str:
    """A line per run of the paper's algorithm at small size, of its variants and of the searches beside it."""
    lines = []
    keys = ["data", "network", "search", "variant", "seed", "initialization"]
    for key, steps in pd.read_csv(folder / "evolution.csv").groupby(keys, sort=False):
        data, network, search, variant, seed, initialization = map(str, key)
        # A run that was repeated begins again at its first step.
        last = steps[steps["step"].diff().lt(0).cumsum().eq(steps["step"].diff().lt(0).sum())]
        end = last.iloc[-1]
        named = search if variant == FULL else f"{search}, {variant}"
        counts = f"{last['surprising'].max()}, {end['surprising']}"
        measures = [f"{end['views'] / 1e6:.1f} million", f"{end['surprise']:.2f}", f"{end['agreement']:.2f}", counts]
        found = " / ".join(f"{end[name]:.1f}" for name in METRICS)
        run = seed if initialization == "0" else f"{seed}, initialization {initialization}"
        lines.append([TITLES[data], network, named, run, *measures, found, str(end["clusters"])])
    header = "data|network|search|seed|forward views|S|agreement|surprising clusters, most and last"
    return markdown([*header.split("|"), THREE, "K̂"], lines)


TABLES: dict[str, Callable[[Path], str]] = {
    **{
        made.__name__: made
        for made in (
            table1,
            results,
            ablation,
            rivals,
            photos,
            subsets,
            unequal,
            zoo,
            zoo_summary,
            folders,
            faults,
            fuzz,
            bigdata,
            novelty,
            evolution,
        )
    },
    "time-to-quality": time_to_quality,
    **{name: speed(name) for name in SPEED},
    "hypotheses": hypotheses_tables.rounds,
    "hypotheses-coarse": hypotheses_tables.coarse,
    "hypotheses-cost": hypotheses_tables.cost,
    "hypotheses-level": hypotheses_tables.level,
}


def renewed(text: str, folder: Path) -> str:
    """A page with its tables made anew."""

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in TABLES:
            raise SystemExit(f"there is no table {name!r}; there are {', '.join(TABLES)}")
        return f"{match[1]}{TABLES[name](folder)}\n{match[3]}"

    found = BLOCK.sub(block, text)
    begun, complete = text.count(": made by benchmarks/readme_table.py -->"), len(BLOCK.findall(text))
    if begun != complete:
        raise SystemExit(f"{begun - complete} tables have no end: each needs <!-- end of NAME --> after it")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", type=Path, nargs="*", metavar="PAGE", help="README.md and docs/**/*.md unless given")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--results", type=Path, default=rows.RESULTS)
    options = parser.parse_args()
    stale = 0
    for page in options.pages or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        new = renewed(text, options.results)
        if new == text:
            continue
        stale += 1
        if options.check:
            print(f"{page} is not up to date: run python benchmarks/readme_table.py")
        else:
            page.write_text(new, encoding="utf-8")
    return int(options.check and stale > 0)


if __name__ == "__main__":
    raise SystemExit(main())
