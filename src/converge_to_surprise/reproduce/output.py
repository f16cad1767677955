"""Tables and figures of finished runs, written into the output folder and printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from ..config.storage import write_atomically, write_json
from ..data.datasets import Dataset
from ..runs.folder import RunFolder
from . import curves, panels, tables
from .plan import Target, job_name
from .purity import class_name, purity_data, purity_text
from .rows import assess_run
from .tables import TITLES, Row
from .taking import run_seed
from .variants import FULL, VARIANTS


def write(
    out: Path, target: Target, rows: list[Row], panel_seed: int | None, sets: dict[str, Dataset], console: Console
) -> list[Path]:
    """Make what a target consists of; returns the files."""
    order = list(TITLES)
    rows = sorted(
        rows, key=lambda row: (order.index(row["dataset"]), list(VARIANTS).index(row["variant"]), row["seed"])
    )
    if target == "curves":
        return _curves(out, rows, console)
    if target == "ablation":
        titles = {name: variant.title for name, variant in VARIANTS.items()}
        text = tables.ablation(rows, titles, [variant.note for variant in VARIANTS.values() if variant.note])
    else:
        text = tables.table1(rows) if target == "table1" else tables.table2(rows)
    console.print(text, markup=False, highlight=False, soft_wrap=True)
    written = _pair(out / target, text, {"table": target, "summary": summary(rows), "runs": rows})
    return [*written, *_clusters(out, rows, panel_seed, sets)] if target == "table1" else written


def summary(rows: list[Row]) -> list[dict[str, Any]]:
    """Means and population standard deviations of each data set and variant, unrounded."""
    found = []
    for (dataset, variant), cell in tables.cells(rows).items():
        spreads = {name: cell.spread(name) for name in cell.rows[0]["metrics"]}
        found.append(
            {
                "dataset": dataset,
                "variant": variant,
                "seeds": [row["seed"] for row in cell.rows],
                "seconds": cell.seconds()._asdict(),
                "metrics": {name: spread and spread._asdict() for name, spread in spreads.items()},
            }
        )
    return found


def _pair(stem: Path, text: str, data: Any) -> list[Path]:
    page, plain = stem.with_suffix(".md"), stem.with_suffix(".json")
    write_atomically(page, text.encode())
    write_json(plain, data)
    return [page, plain]


def _clusters(out: Path, rows: list[Row], seed: int | None, sets: dict[str, Dataset]) -> list[Path]:
    """Panels and purity list of one run per data set."""
    chosen: dict[str, Row] = {}
    for row in rows:
        if row["variant"] == FULL and row["metrics"]["acc"] is not None and seed in (None, row["seed"]):
            chosen.setdefault(row["dataset"], row)
    if not chosen:
        return []
    written = _pair(out / "purity", purity_text(list(chosen.values())), purity_data(list(chosen.values())))
    for name, row in chosen.items():
        if name in sets:  # the images of the others are not at hand
            path = out / f"panels-{name}.png"
            write_atomically(path, _panels(out / "runs" / job_name(name, FULL, run_seed(row)), sets[name]))
            written.append(path)
    return written


def _panels(folder: Path, dataset: Dataset) -> bytes:
    assessment = assess_run(folder, dataset)
    assert assessment.classes is not None
    found = panels.choose(assessment.labels, assessment.classes)
    captions = [f"cluster {panel.cluster}, {class_name(dataset.name, panel.number)}: {panel.images}" for panel in found]
    return panels.draw(found, dataset.evaluation.images.numpy(), captions)


def _curves(out: Path, rows: list[Row], console: Console) -> list[Path]:
    """One figure per data set, every seed in it."""
    lines, data, written = [], [], []
    for name in dict.fromkeys(row["dataset"] for row in rows):
        runs = [row for row in rows if row["dataset"] == name]
        found = [
            curves.Curve(
                f"seed {row['seed']}" + (f", start {row['taken'] + 1}" if "starts" in row else ""),
                curves.thin(RunFolder(out / "runs" / job_name(name, FULL, run_seed(row))).records()),
            )
            for row in runs
        ]
        path = out / f"curves-{name}.svg"
        title = f"{TITLES[name]}: surprising clusters in training"
        write_atomically(path, curves.draw(title, found, 10).encode())
        written.append(path)
        ends = ", ".join(str(curve.points[-1].surprising) for curve in found)
        peaks = ", ".join(str(max(point.surprising for point in curve.points)) for curve in found)
        lines.append(f"## {TITLES[name]}\n\n![{title}]({path.name})\n\nAt most {peaks}; at the end {ends}.")
        console.print(f"{title}: at most {peaks}; at the end {ends}", markup=False, highlight=False, soft_wrap=True)
        data += [
            {key: row[key] for key in ("dataset", "variant", "seed", "preset", "command", "versions", "seconds")}
            | {"points": [point._asdict() for point in curve.points]}
            for row, curve in zip(runs, found, strict=True)
        ]
    about = (
        "Clusters that over-match with D_k of at least tau, among the two views of the images of one step (of all "
        "images in a merge or consolidation step); with several heads, those of the one in the middle."
    )
    text = "\n\n".join(["# Clusters in training (figures 6 to 8 of the paper)", *lines, about]) + "\n"
    return [*written, *_pair(out / "curves", text, {"table": "curves", "runs": data})]
