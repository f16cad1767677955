"""Make the tables of README.md and docs/ from the CSV files of benchmarks/results/.

    python benchmarks/readme_table.py [--check] [--results FOLDER] [PAGE ...]

A table stands between two comments, ``<!-- NAME: made by benchmarks/readme_table.py -->`` and ``<!-- end of NAME -->``,
on any of the pages; NAME is one of ``TABLES``. Of several rows about the same thing the last one counts. With
``--check`` nothing is written: the exit code is 1 if a table is not up to date.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import rows
from rich.cells import cell_len, set_cell_size

ROOT = Path(__file__).parents[1]
PUBLISHED = ROOT / "src/converge_to_surprise/experiments/published.csv"
BLOCK = re.compile(
    r"(<!-- (?P<name>[\w-]+): made by benchmarks/readme_table\.py -->\n).*?(<!-- end of (?P=name) -->)", re.DOTALL
)
ABSENT = "–"
TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "usps": "USPS", "digits": "digits (scikit-learn)"}
METRICS = ("acc", "nmi", "ari")
SECOND_INITIALIZATION = 1000
"""Initialization n of seed s is the run of seed s + 1000 (n - 1)."""
Row = dict[str, str]


def newest(found: Iterable[Row], *keys: str) -> list[Row]:
    """The last row of every combination of the keys' values, in the order of their first rows."""
    return list({tuple(row[key] for key in keys): row for row in found}.values())


def grouped(found: Iterable[Row], *keys: str) -> dict[tuple[str, ...], list[Row]]:
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in found:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def values(group: Iterable[Row], name: str, scale: float = 1.0) -> list[float]:
    """The numbers of a column, without the empty fields."""
    return [scale * float(row[name]) for row in group if row[name] != ""]


def spread(numbers: Sequence[float], digits: int = 1) -> str:
    """Mean and population standard deviation.

    >>> spread([97.0, 99.0]), spread([97.0]), spread([])
    ('98.0 ± 1.0', '97.0', '–')
    """
    if not numbers:
        return ABSENT
    mean = f"{statistics.fmean(numbers):.{digits}f}"
    return mean if len(numbers) == 1 else f"{mean} ± {statistics.pstdev(numbers):.{digits}f}"


def duration(seconds: Sequence[float]) -> str:
    """
    >>> duration([66, 74]), duration([570, 630])
    ('70 ± 4 s', '10.0 ± 0.5 min')
    """
    if not seconds or statistics.fmean(seconds) < 120:
        return f"{spread(seconds, 0)} s" if seconds else ABSENT
    return f"{spread([value / 60 for value in seconds])} min"


def three(group: Sequence[Row], suffix: str = "") -> str:
    """ACC / NMI / ARI in %, as means."""
    return " / ".join(f"{statistics.fmean(values(group, f'{name}{suffix}', 100)):.1f}" for name in METRICS)


def seeds(group: Iterable[Row]) -> str:
    """
    >>> seeds([{"seed": "0"}, {"seed": "1"}, {"seed": "2"}]), seeds([{"seed": "0"}, {"seed": "7"}])
    ('3 (0-2)', '2 (0, 7)')
    """
    numbers = sorted(int(row["seed"]) for row in group if row["seed"] != "")
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{len(numbers)} ({numbers[0]}-{numbers[-1]})"
    return f"{len(numbers)} ({', '.join(map(str, numbers))})"


def markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table that can be read as it is: cells are padded to the width of their column."""
    widths = [max(3, *(cell_len(line[column]) for line in [header, *lines])) for column in range(len(header))]

    def joined(words: Sequence[str]) -> str:
        return "| " + " | ".join(set_cell_size(word, width) for word, width in zip(words, widths, strict=True)) + " |"

    return "\n".join([joined(header), "|" + "|".join("-" * (width + 2) for width in widths) + "|", *map(joined, lines)])


def by_dataset(found: Iterable[Row], column: str = "dataset") -> list[tuple[str, list[Row]]]:
    """Rows by data set, in the order of ``TITLES``."""
    groups = grouped(found, column)
    return [(name, groups[name,]) for name in TITLES if (name,) in groups]


def published(dataset: str) -> str:
    """ACC / NMI / ARI and the number of clusters in the paper."""
    for row in rows.read_rows(PUBLISHED):
        if (row["method"], row["variant"], row["dataset"]) == ("the paper", "full", dataset):
            scores = " / ".join(f"{float(row[name]):.1f}" for name in METRICS)
            return f"{scores}, {float(row['n_clusters']):.1f} ± {float(row['n_clusters_std']):.1f}"
    return ABSENT


def table1(folder: Path) -> str:
    """A line per data set, the paper's numbers beside ours."""
    lines = []
    for dataset, group in by_dataset(newest(rows.read_rows(folder / "table1.csv"), "dataset", "seed", "n_init")):
        selected = [row for row in group if row["n_init"] != "1"]
        lines.append([TITLES[dataset], *_scores(selected)[:-1], "10", published(dataset)])
    return markdown(["data", "ACC", "NMI", "ARI", "K̂", "classes", "the paper: ACC / NMI / ARI, K̂"], lines)


def results(folder: Path) -> str:
    """A line per data set, the paper's numbers beside ours, and one for the first initializations alone."""
    header = ["data", "ACC", "NMI", "ARI", "K̂", "seeds", "time per run", "both views: ACC / NMI / ARI"]
    lines = []
    for dataset, group in by_dataset(newest(rows.read_rows(folder / "table1.csv"), "dataset", "seed", "n_init")):
        single = [row for row in group if row["n_init"] == "1"]
        selected = [row for row in group if row["n_init"] != "1"]
        first = [row for row in single if int(row["seed"]) < SECOND_INITIALIZATION]
        paper = published(dataset)
        if selected:
            each = f"{selected[0]['n_init']} × {duration(values(single, 'seconds'))}"
            lines.append([TITLES[dataset], *_scores(selected), each, three(selected, "_both"), paper])
        if first:
            title = f"{TITLES[dataset]}, one initialization" if selected else TITLES[dataset]
            time = duration(values(first, "seconds"))
            lines.append([title, *_scores(first), time, ABSENT, ABSENT if selected else paper])
    return markdown([*header, "the paper: ACC / NMI / ARI, K̂"], lines)


def _scores(group: list[Row]) -> list[str]:
    return [*(spread(values(group, name, 100)) for name in METRICS), spread(values(group, "n_clusters")), seeds(group)]


def ablation(folder: Path) -> str:
    """A line per variant, a column per data set."""
    found = newest(rows.read_rows(folder / "ablation.csv"), "dataset", "variant", "seed")
    cells, sets = grouped(found, "dataset", "variant"), [name for name, _ in by_dataset(found)]
    titles = {"full": "full method", "without-zoom-out": "without anisotropic zoom-out"}

    def text(group: list[Row]) -> str:
        return f"{three(group)}, {spread(values(group, 'n_clusters'))} (n={len(group)})" if group else ABSENT

    lines = [
        [titles.get(variant, variant.replace("-", " ")), *(text(cells.get((name, variant), [])) for name in sets)]
        for variant in sorted({row["variant"] for row in found}, key=_first_places(found).__getitem__)
    ]
    return markdown(["ACC / NMI / ARI, K̂ (seeds)", *(TITLES[name] for name in sets)], lines)


def _first_places(found: list[Row]) -> dict[str, int]:
    """Where each variant comes in the data set that has the most of them."""
    most = max((group for _, group in by_dataset(found)), key=lambda group: len({row["variant"] for row in group}))
    order = dict.fromkeys(row["variant"] for row in [*most, *found])
    return {variant: place for place, variant in enumerate(order)}


def rivals(folder: Path) -> str:
    """What other methods find that are not told the number of clusters, with ours."""
    found = newest(rows.read_rows(folder / "rivals.csv"), "method", "data", "seed", "threads")
    ours = newest(rows.read_rows(folder / "table1.csv"), "dataset", "seed", "n_init")
    titles = {"umap+hdbscan": "UMAP + HDBSCAN", "evoc": "EVoC"}
    lines = []
    for dataset, group in by_dataset(found, "data"):
        for (method,), runs in grouped(group, "method").items():
            one, two = ([row for row in runs if row["threads"] == count] for count in ("1", "2"))
            noise = f"{statistics.fmean(values(one, 'noise', 100)):.1f} %"
            times = [duration(values(*which)) for which in ((one, "cpu_seconds"), (one, "seconds"), (two, "seconds"))]
            name = titles.get(method, method)
            lines.append([TITLES[dataset], name, *_scores(one), noise, *times])
        own = [row for row in ours if row["dataset"] == dataset and row["n_init"] != "1"]
        if own:
            times = [ABSENT, duration(values(own, "seconds")), ABSENT]
            lines.append([TITLES[dataset], "converge-to-surprise", *_scores(own), ABSENT, *times])
    header = [
        "data",
        "method",
        "ACC",
        "NMI",
        "ARI",
        "K̂",
        "seeds",
        "noise",
        "CPU time",
        "time, one thread",
        "two threads",
    ]
    return markdown(header, lines)


def subsets(folder: Path) -> str:
    """How many clusters are found among other numbers and sizes of classes, with one initialization."""
    found = newest(rows.read_rows(folder / "subsets.csv"), "subset", "seed", "n_init")
    first = [row for row in found if row["n_init"] == "1" and int(row["seed"]) < SECOND_INITIALIZATION]
    lines = []
    for (name,), group in grouped(first, "subset").items():
        sizes = [int(size) for size in group[0]["class_sizes"].split()]
        count = spread(values(group, "n_clusters"))
        lines.append([name, str(len(sizes)), f"{min(sizes)}-{max(sizes)}", count, three(group), seeds(group)])
    return markdown(["digits", "classes", "images of a class", "K̂", "ACC / NMI / ARI", "seeds"], lines)


def unequal(folder: Path) -> str:
    """Both initializations of the digits with classes of unequal sizes, and which one was selected."""
    found = newest(rows.read_rows(folder / "subsets.csv"), "subset", "seed", "n_init")
    some = [row for row in found if row["subset"] == "unequal classes"]
    single = {row["seed"]: row for row in some if row["n_init"] == "1"}

    def text(row: Row) -> str:
        return f"{three([row])}, K̂ {row['n_clusters']}, balance {float(row['balance']):.3f}"

    lines = []
    for row in (row for row in some if row["n_init"] == "2"):
        first, second = (single[str(int(row["seed"]) + extra)] for extra in (0, SECOND_INITIALIZATION))
        selected = "first" if row["selected_seed"] == first["seed"] else "second"
        lines.append([row["seed"], text(first), text(second), selected])
    return markdown(["seed", "first initialization", "second initialization", "selected"], lines)


def folders(folder: Path) -> str:
    """ACC of held-out images when the digits are read from files."""
    found = newest(rows.read_rows(folder / "folders.csv"), "kind", "form", "seed")
    lines = [
        [
            kind,
            form,
            spread(values(group, "held_out_acc", 100)),
            spread(values(group, "held_out_n_clusters")),
            seeds(group),
        ]
        for (kind, form), group in grouped(found, "kind", "form").items()
    ]
    return markdown(["digits", "as", "ACC of held-out images", "K̂", "seeds"], lines)


def faults(folder: Path) -> str:
    """What real runs were hurt by, and how many of them lost anything."""
    found = newest(rows.read_rows(folder / "faults.csv"), "fault")
    names = ("tried", "survived", "lost")
    lines = [[row["fault"], *(f"{int(row[name]):,}" for name in names)] for row in found]
    return markdown(
        ["fault", *names], [*lines, ["all", *(f"{sum(map(int, values(found, name))):,}" for name in names)]]
    )


def fuzz(folder: Path) -> str:
    """What became of damaged files."""
    found = newest(rows.read_rows(folder / "fuzz.csv"), "file")
    names = ("examples", "accepted", "crashes")
    lines = [[row["file"], *(f"{int(row[name]):,}" for name in names), row["slowest_seconds"]] for row in found]
    return markdown(["file", *names, "slowest, s"], lines)


STAGES = {
    "search": ("one step of the search, ms", "step_cpu_seconds", 1000, 1),
    "refine": ("one step of refining, ms", "step_cpu_seconds", 1000, 1),
    "fingerprint": ("fingerprint, s", "cpu_seconds", 1, 3),
    "neighbors by pixels": ("neighbors by pixels, s", "cpu_seconds", 1, 1),
    "neighbors by features": ("neighbors by features, s", "cpu_seconds", 1, 1),
    "labeling": ("labeling by both networks, s", "cpu_seconds", 1, 1),
    "finishing": ("judging and writing labels, s", "cpu_seconds", 1, 1),
    "whole run": ("peak memory of its own, MB", "megabytes", 1, 0),
}
"""What is shown of a stage: title, column, factor, decimal places."""


def bigdata(folder: Path) -> str:
    """Time and memory by the number of images, and how they grow; of the last command that went through whole runs."""
    every = rows.read_rows(folder / "bigdata.csv")
    command = [row["command"] for row in every if row["stage"] == "whole run"][-1]
    found = newest((row for row in every if row["command"] == command), "images", "stage")
    sizes = sorted({int(row["images"]) for row in found if row["stage"] == "whole run"})
    lines = []
    for stage, (title, column, factor, digits) in STAGES.items():
        series = {int(row["images"]): float(row[column]) for row in found if row["stage"] == stage}
        # The pool of neighbors shrinks with fewer images than it has: such sizes tell nothing about growth.
        pool = max(int(row["pool"]) for row in found if row["stage"] == stage) if "neighbors" in stage else 0
        used = [size for size in sizes if size >= pool]
        shown = [f"{factor * series[size]:.{digits}f}" for size in sizes]
        lines.append([title, *shown, *growth(used, [series[size] for size in used], column == "cpu_seconds")])
    return markdown(["images", *(f"{size:,}" for size in sizes), "exponent", "fixed + per image"], lines)


def growth(sizes: Sequence[int], numbers: Sequence[float], passes: bool) -> list[str]:
    """Slope of log(value) over log(images) and, for passes over all images, the line with the least relative errors."""
    if len(sizes) < 2:
        return [ABSENT, ABSENT]
    exponent = float(np.polyfit(np.log(sizes), np.log(numbers), 1)[0])
    if not passes:
        return [f"{exponent:.2f}", ABSENT]
    slope, fixed = np.polyfit(sizes, numbers, 1, w=1 / np.array(numbers))
    return [f"{exponent:.2f}", f"{round(float(fixed), 1) + 0.0:.1f} s + {1e6 * slope:.2g} µs"]


def speed(benchmark: str, threads: int, shown: dict[str, str]) -> Callable[[Path], str]:
    """A table of some figures of one benchmark, by their names in the file and on the page."""

    def made(folder: Path) -> str:
        found = newest(rows.read_rows(folder / "speed.csv"), "benchmark", "what", "threads")
        some = {row["what"]: row for row in found if (row["benchmark"], row["threads"]) == (benchmark, str(threads))}
        lines = [[title, _quantity(some[what])] for what, title in shown.items() if what in some]
        return markdown([f"{threads} threads" if threads > 1 else "one thread", ""], lines)

    return made


def _quantity(row: Row) -> str:
    value, unit = float(row["value"]), row["unit"]
    return f"{value:.2f}" if unit == "ratio" else f"{value:,.{0 if value >= 100 else 1}f} {unit}"


TABLES: dict[str, Callable[[Path], str]] = {
    "table1": table1,
    "results": results,
    "ablation": ablation,
    "rivals": rivals,
    "subsets": subsets,
    "unequal": unequal,
    "folders": folders,
    "faults": faults,
    "fuzz": fuzz,
    "bigdata": bigdata,
    "relaxed-step": speed(
        "relaxed_step",
        2,
        {
            "bare forward and backward pass": "bare forward and backward pass, best batch size",
            "step": "whole step: partners, views, augmentation, score, backward pass, optimizer",
            "step / bare": "ratio",
            "bare, the paper's network": "bare, the paper's network",
            "bare, torch.compile": "bare, `torch.compile`",
            "bare, 2 processes of one thread": "bare, two processes of one thread",
        },
    ),
    "evolution-step": speed(
        "evolution_step",
        2,
        {
            "bare forward pass": "bare forward pass, best settings",
            "update": "whole update",
            "update / bare": "ratio",
            "peak memory": "peak memory",
            "update by vmap": "the same update with `vmap` over the weights",
        },
    ),
    "predict": speed(
        "predict",
        2,
        {
            "from an array": "images of 28x28 from an array",
            "array / bare": "as a share of the bare network's forward pass on both views",
            "from PNG files": "from PNG files",
            "peak memory for 10,000 images": "peak memory for 10,000 images",
            "peak memory for 200,000 images": "peak memory for 200,000 images",
        },
    ),
    "processes": speed(
        "processes",
        2,
        {
            "relaxed: 2 processes / one": "relaxed: two processes of one thread against one of two",
            "evolution: 2 processes / one": "evolution: two processes of one thread against one of two",
        },
    ),
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
