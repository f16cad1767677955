"""Means over seeds beside the published numbers, as Markdown. It works on rows of plain data alone."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size

from . import published
from .published import Published, Spread

Row = dict[str, Any]
"""A finished run: dataset, variant, seed, preset, overlay (settings laid over it), command, versions, threads, seconds,
split, metrics, clusters, balance. One that was taken among several starts has their rows as ``starts``."""
METRICS = ("acc", "nmi", "ari")
TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "usps": "USPS", "digits": "digits (scikit-learn)"}
ABSENT = "–"
OURS = "converge-to-surprise"
STARTS_NOTE = (
    "Of the starts of a seed the one whose clusters of the training images are the best balanced is taken, without any "
    "class. One start: the first of them, whatever came of it."
)


class Cell(NamedTuple):
    """What the runs of one data set and one variant have in common."""

    rows: list[Row]

    def spread(self, key: str, scale: float = 1.0) -> Spread | None:
        """Mean and population standard deviation of a metric; of a single run there is no deviation."""
        values = [scale * row["metrics"][key] for row in self.rows if row["metrics"].get(key) is not None]
        if not values:
            return None
        return Spread(statistics.fmean(values), statistics.pstdev(values) if len(values) > 1 else None)

    def seconds(self) -> Spread:
        values = [row["seconds"] for row in self.rows]
        return Spread(statistics.fmean(values), statistics.pstdev(values) if len(values) > 1 else None)

    def first_starts(self) -> Cell | None:
        """What there would be without a choice; None if there was none."""
        return Cell([row["starts"][0] for row in self.rows]) if all("starts" in row for row in self.rows) else None

    def time(self) -> str:
        """Of a run; of several starts, which need not wait for each other, that of each."""
        starts = [start for row in self.rows for start in row.get("starts", [row])]
        each = duration(Cell(starts).seconds())
        return each if len(starts) == len(self.rows) else f"{len(starts) // len(self.rows)} × {each}"

    def seeds(self) -> str:
        return f"{len(self.rows)} ({ranges(row['seed'] for row in self.rows)})"


def cells(rows: Iterable[Row]) -> dict[tuple[str, str], Cell]:
    """Rows by data set and variant, in the order of their seeds."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: int(row["seed"])):
        found.setdefault((row["dataset"], row["variant"]), []).append(row)
    return {key: Cell(group) for key, group in found.items()}


def ranges(numbers: Iterable[int]) -> str:
    """
    >>> ranges([0, 1, 2, 3, 4]), ranges([0, 2, 3, 9])
    ('0-4', '0, 2, 3, 9')
    """
    listed = list(numbers)
    if len(listed) > 2 and listed == list(range(listed[0], listed[-1] + 1)):
        return f"{listed[0]}-{listed[-1]}"
    return ", ".join(map(str, listed))


def shown(spread: Spread | None, digits: int = 1) -> str:
    """
    >>> shown(Spread(98.26, 0.5)), shown(Spread(97.0)), shown(None)
    ('98.3 ± 0.5', '97.0', '–')
    """
    if spread is None:
        return ABSENT
    mean = f"{spread.mean:.{digits}f}"
    return mean if spread.std is None else f"{mean} ± {spread.std:.{digits}f}"


def duration(seconds: Spread) -> str:
    """
    >>> duration(Spread(70, 4)), duration(Spread(600, 30))
    ('70 ± 4 s', '10.0 ± 0.5 min')
    """
    if seconds.mean < 120:
        return f"{shown(seconds, 0)} s"
    return f"{shown(Spread(seconds.mean / 60, None if seconds.std is None else seconds.std / 60))} min"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that can be read as it is: cells padded to the width of their column."""
    lines = [list(header), *map(list, rows)]
    widths = [max(3, *(cell_len(line[column]) for line in lines)) for column in range(len(header))]

    def line(words: Sequence[str]) -> str:
        return "| " + " | ".join(set_cell_size(word, width) for word, width in zip(words, widths, strict=True)) + " |"

    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([line(header), rule, *map(line, rows)])


def measured(cell: Cell) -> list[str]:
    """ACC, NMI, ARI, clusters, seeds, seconds, and ACC, NMI, ARI of both views."""
    return [
        *(shown(cell.spread(name, 100)) for name in METRICS),
        shown(cell.spread("n_clusters")),
        cell.seeds(),
        cell.time(),
        *(shown(cell.spread(f"{name}_both", 100)) for name in METRICS),
    ]


MEASURED = ["ACC", "NMI", "ARI", "K̂", "seeds", "time per run", "ACC both", "NMI both", "ARI both"]


def _published(row: Published) -> list[str]:
    clusters = "given" if row.given else shown(row.clusters)
    figures = [shown(row.acc), shown(row.nmi), shown(row.ari), clusters, ABSENT, row.time or ABSENT]
    return [row.method, *figures, ABSENT, ABSENT, ABSENT]


def _order(rows: Iterable[Row]) -> list[str]:
    present = {row["dataset"] for row in rows}
    return [name for name in TITLES if name in present]


def table1(rows: Sequence[Row]) -> str:
    """The main results, one table per data set."""
    by_cell, parts = cells(rows), []
    for dataset in _order(rows):
        cell = by_cell[dataset, "full"]
        lines = [[OURS, *measured(cell)]]
        if (first := cell.first_starts()) is not None:
            lines.append([f"{OURS}, one start", *measured(first)])
        lines += map(_published, published.results(dataset))
        parts.append(f"## {TITLES[dataset]}\n\n{markdown(['method', *MEASURED], lines)}")
    return _page("Main results (table 1 of the paper)", parts, rows, sources=True)


def table2(rows: Sequence[Row]) -> str:
    """The inferred number of clusters."""
    by_cell, sets = cells(rows), _order(rows)
    methods = [row.method for row in published.results("mnist") if row.clusters is not None]
    lines = [[OURS, *(shown(by_cell[name, "full"].spread("n_clusters")) for name in sets)]]
    lines += [["seeds", *(by_cell[name, "full"].seeds() for name in sets)]]
    lines += [[method, *(shown(published.clusters(method, name)) for name in sets)] for method in methods]
    text = markdown(["method", *(TITLES[name] for name in sets)], lines)
    text += "\n\nEvery data set has ten classes. A cluster counts if it holds an image of the evaluated split."
    return _page("Inferred number of clusters (table 2 of the paper)", [text], rows, sources=True)


def ablation(rows: Sequence[Row], titles: dict[str, str], notes: Sequence[str]) -> str:
    """What each part of the method is worth, one table per data set; ``titles`` names the variants in order."""
    by_cell, parts = cells(rows), []
    header = ["variant", *MEASURED, "paper ACC", "paper NMI", "paper ARI"]
    for dataset in _order(rows):
        lines = []
        for variant, title in titles.items():
            cell, theirs = by_cell.get((dataset, variant)), published.ablation(variant, dataset)
            ours = [ABSENT] * len(MEASURED) if cell is None else measured(cell)
            said = [shown(value) for value in theirs[2:5]] if theirs else [ABSENT] * 3
            if cell is not None or theirs is not None:
                lines.append([title, *ours, *said])
        parts.append(f"## {TITLES[dataset]}\n\n{markdown(header, lines)}")
    about = "A variant that is missing does not apply: there is nothing to take away, or it has not been run."
    return _page(
        "Ablations (table 3 of the paper, and our own)",
        [*parts, "\n".join(f"- {note}" for note in (about, *notes))],
        rows,
    )


def _page(title: str, parts: Sequence[str], rows: Sequence[Row], sources: bool = False) -> str:
    presets = sorted({row["preset"] for row in rows})
    overlays = {json.dumps(row["overlay"]) for row in rows if row.get("overlay")}
    splits = "; ".join(
        f"{TITLES[name]}: {'test split' if split == 'test' else 'the clustered images, as there is no test split'}"
        for name, split in dict.fromkeys((row["dataset"], row["split"]) for row in rows)
    )
    versions = sorted({", ".join(f"{name} {number}" for name, number in row["versions"].items()) for row in rows})
    threads = ", ".join(map(str, sorted({row["threads"] for row in rows})))
    notes = [
        *(f"Not the preset alone: in these runs {text} is laid over it." for text in sorted(overlays)),
        f"Preset {', '.join(presets)}. ACC, NMI, ARI in %, mean ± population standard deviation over the seeds named.",
        'Labels are those of view i, un-augmented, as in the paper; "both": of the mean of both views\' outputs.',
        f"Evaluated on: {splits}.",
        *([STARTS_NOTE] if any("starts" in row for row in rows) else []),
        f"Time: of training, with {threads} thread{'' if threads == '1' else 's'}. Versions: {'; '.join(versions)}.",
    ]
    if sources:
        found = dict.fromkeys((row.source, row.method) for row in published.RESULTS)
        by_source: dict[str, list[str]] = {}
        for source, method in found:
            by_source.setdefault(source, []).append(method)
        notes.append(
            "Sources: " + "; ".join(f"{', '.join(names)}: {source}" for source, names in by_source.items()) + "."
        )
    return "\n\n".join([f"# {title}", *parts, "\n".join(f"- {note}" for note in notes)]) + "\n"
