"""From a CSV file with one row per run to Markdown tables: means over seeds beside the published numbers."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from .plan import FULL, VARIANTS

METRICS = ["acc", "nmi", "ari"]
COLUMNS = (
    "dataset", "variant", "preset", "seed", "command", "versions", "seconds", "split", "images", "n_clusters",
    "acc", "nmi", "ari", "purity", "n_clusters_both", "acc_both", "nmi_both", "ari_both",
    "surprise", "orderliness", "agreement", "n_surprising", "settings",
)  # fmt: skip
"""Of a row. Scores are fractions; those that end in ``_both`` are of the mean of both views' outputs, the others of
view i. ``settings``: those applied on top of the preset, as JSON."""
TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "usps": "USPS", "digits": "digits (scikit-learn)"}
PUBLISHED = Path(__file__).with_name("published.csv")
OURS = "converge-to-surprise"
PAPER = "the paper"
ABSENT = "–"


def read(path: Path) -> pd.DataFrame:
    """The rows of a CSV file of runs."""
    rows = pd.read_csv(path)
    if missing := [name for name in COLUMNS if name not in rows]:
        raise ValueError(f"{path} is not a table of runs: it has no column {', '.join(missing)}")
    return rows


def spread(mean: float, std: float, digits: int = 1) -> str:
    """
    >>> spread(98.26, 0.5), spread(97, float("nan")), spread(float("nan"), 1)
    ('98.3 ± 0.5', '97.0', '–')
    """
    if pd.isna(mean):
        return ABSENT
    return f"{mean:.{digits}f}" + ("" if pd.isna(std) else f" ± {std:.{digits}f}")


def mean_text(values: pd.Series[float], digits: int = 1) -> str:
    """Mean ± population standard deviation; a single value has no deviation.

    >>> mean_text(pd.Series([90.0, 96.0, 84.0])), mean_text(pd.Series([7.0]))
    ('90.0 ± 4.9', '7.0')
    """
    known = values.dropna()
    return spread(known.mean(), known.std(ddof=0) if len(known) > 1 else float("nan"), digits)


def percent(values: pd.Series[float]) -> str:
    return mean_text(values.astype(float) * 100)


def duration(values: pd.Series[float]) -> str:
    """
    >>> duration(pd.Series([66.0, 74.0])), duration(pd.Series([570.0, 630.0]))
    ('70 ± 4 s', '10.0 ± 0.5 min')
    """
    if values.empty:
        return ABSENT
    return f"{mean_text(values, 0)} s" if values.mean() < 120 else f"{mean_text(values / 60)} min"


def seeds_text(values: pd.Series[int]) -> str:
    """
    >>> seeds_text(pd.Series([0, 1, 2, 3, 4])), seeds_text(pd.Series([9, 0]))
    ('5 (0-4)', '2 (0, 9)')
    """
    seeds = sorted(values.tolist())
    whole = len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1))
    return f"{len(seeds)} ({f'{seeds[0]}-{seeds[-1]}' if whole else ', '.join(map(str, seeds))})"


SUMMARY: dict[str, Callable[[pd.Series[Any]], str]] = {
    **dict.fromkeys(METRICS, percent), "n_clusters": mean_text, "seed": seeds_text, "seconds": duration,
    **dict.fromkeys([f"{name}_both" for name in METRICS], percent),
}  # fmt: skip
HEADINGS = ["ACC", "NMI", "ARI", "K̂", "seeds", "time per run", "ACC both", "NMI both", "ARI both"]
"""Of the columns of ``summarize``."""


def summarize(rows: pd.DataFrame, by: str | list[str]) -> pd.DataFrame:
    """The columns of ``SUMMARY`` as text, over the seeds of each group; the index names the group."""
    texts = {name: rows.groupby(by, sort=False)[name].agg(text) for name, text in SUMMARY.items()}
    return pd.DataFrame(texts)


def published() -> pd.DataFrame:
    """The numbers that others published, as text in the columns of ``SUMMARY``; method, variant, dataset and source."""
    table = pd.read_csv(PUBLISHED)
    texts = table[["method", "variant", "dataset", "source"]].copy()
    for name in SUMMARY:
        texts[name] = ABSENT
    for name in [*METRICS, "n_clusters"]:
        texts[name] = list(map(spread, table[name], table[f"{name}_std"]))
    texts.loc[table["given"], "n_clusters"] = "given"
    texts["seconds"] = table["time"].fillna(ABSENT)
    return texts


def markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns are aligned in plain text too."""

    def width(text: str) -> int:
        return sum(not unicodedata.combining(letter) for letter in text)

    def line(cells: Sequence[str]) -> str:
        padded = [cell + " " * (size - width(cell)) for cell, size in zip(cells, widths, strict=True)]
        return "| " + " | ".join(padded) + " |"

    widths = [max(3, *map(width, column)) for column in zip(header, *lines, strict=True)]
    rule = "|" + "|".join("-" * (size + 2) for size in widths) + "|"
    return "\n".join([line(header), rule, *map(line, lines)])


def _ordered(rows: pd.DataFrame) -> list[str]:
    present = list(dict.fromkeys(rows["dataset"]))
    return [name for name in TITLES if name in present] + [name for name in present if name not in TITLES]


def title(dataset: str) -> str:
    return TITLES.get(dataset, dataset)


def table1(rows: pd.DataFrame) -> str:
    """The main results, one table per data set."""
    ours, others, parts = summarize(rows, "dataset"), published(), []
    others = others[(others["variant"] == FULL) & others["dataset"].isin(rows["dataset"])]
    for name in _ordered(rows):
        theirs = others.loc[others["dataset"] == name, ["method", *SUMMARY]]
        lines = [[OURS, *ours.loc[name]], *theirs.to_numpy().tolist()]
        parts.append(f"## {title(name)}\n\n{markdown(['method', *HEADINGS], lines)}")
    return _page("Main results (table 1 of the paper)", parts, rows, others)


def table2(rows: pd.DataFrame) -> str:
    """The inferred number of clusters."""
    ours, others, names = summarize(rows, "dataset"), published(), _ordered(rows)
    others = others[~others["n_clusters"].isin([ABSENT, "given"]) & others["dataset"].isin(names)]
    theirs = others.pivot(index="method", columns="dataset", values="n_clusters").reindex(columns=names).fillna(ABSENT)
    lines = [[OURS, *ours.loc[names, "n_clusters"]], ["seeds", *ours.loc[names, "seed"]]]
    lines += [[method, *theirs.loc[method]] for method in dict.fromkeys(others["method"])]
    text = markdown(["method", *map(title, names)], lines)
    text += "\n\nEvery data set has ten classes. A cluster counts if it holds an image of the evaluated split."
    return _page("Inferred number of clusters (table 2 of the paper)", [text], rows, others)


def ablation(rows: pd.DataFrame) -> str:
    """The method without each of its parts, one table per data set."""
    ours, others, parts = summarize(rows, ["dataset", "variant"]), published(), []
    others = others[(others["method"] == PAPER) & others["dataset"].isin(rows["dataset"])]
    papers = others.set_index(["dataset", "variant"])
    for name in _ordered(rows):
        lines = []
        for variant, (heading, _) in VARIANTS.items():
            if (name, variant) in ours.index or (name, variant) in papers.index:
                found = [frame.reindex([(name, variant)]).fillna(ABSENT).iloc[0] for frame in (ours, papers)]
                lines.append([heading, *found[0], *found[1][METRICS]])
        header = ["variant", *HEADINGS, *(f"paper {metric.upper()}" for metric in METRICS)]
        parts.append(f"## {title(name)}\n\n{markdown(header, lines)}")
    parts.append("One initialization per run. A variant that is missing does not apply, or has not been run.")
    return _page("Ablations (table 3 of the paper, and our own)", parts, rows, others)


def purity(dataset: str, seed: int, clusters: pd.DataFrame) -> str:
    """The share of every cluster that belongs to its most frequent class: columns cluster, images, purity, class."""
    texts = clusters.assign(purity=clusters["purity"].map("{:.1%}".format)).astype(str)
    table = markdown(list(texts.columns), texts.to_numpy().tolist())
    return f"# Purity of the clusters (appendix C of the paper): {title(dataset)}, seed {seed}\n\n{table}\n"


def figure_page(rows: pd.DataFrame) -> str:
    """The figures of the numbers of clusters, one per data set."""
    parts = [
        "# Clusters in training (figures 6 to 8 of the paper)",
        *(f"## {title(name)}\n\n![{title(name)}](curves-{name}.svg)" for name in _ordered(rows)),
        "Solid: surprising clusters, which over-match with D_k of at least tau; dotted: active clusters, which hold a "
        "view. Counted among the two views of the images of one step (of all images in a merge or consolidation step); "
        "with several heads, those of the median head.",
    ]
    return "\n\n".join(parts) + "\n"


def _page(heading: str, parts: Sequence[str], rows: pd.DataFrame, others: pd.DataFrame) -> str:
    """A page with notes on how the rows were made and where the other numbers come from."""
    settings = sorted(set(rows["settings"]) - {"{}"})
    whole = ", ".join(map(title, dict.fromkeys(rows.loc[rows["split"] == "train", "dataset"])))
    threads = sorted(set(rows["command"].str.extract(r"--threads (\d+)", expand=False).dropna()))
    sources = others.groupby("source", sort=False)["method"].agg(lambda names: ", ".join(dict.fromkeys(names)))
    notes = [
        *(f"Not the preset alone: in these runs {text} is applied on top of it." for text in settings),
        f"Preset {', '.join(sorted(set(rows['preset'])))}. ACC, NMI, ARI in %: mean ± population standard deviation "
        "over the seeds named.",
        'Labels are those of view i, un-augmented, as in the paper; "both": of the mean of both views\' outputs.',
        "Evaluated on the test split" + (f", or without one on the clustered images: {whole}." if whole else "."),
        f"Time of training, threads: {', '.join(threads)}. Versions: {'; '.join(sorted(set(rows['versions'])))}.",
        *(f"{names}: {source}." for source, names in sources.items()),
    ]
    return "\n\n".join([f"# {heading}", *parts, "\n".join(f"- {note}" for note in notes)]) + "\n"
