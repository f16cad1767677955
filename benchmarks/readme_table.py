"""Write the results into the README: what stands between its marker comments is made from benchmarks/results/.

    python benchmarks/readme_table.py [--check]

The results are the table1.json and the ablation.json that ``cts reproduce`` writes, the latter if it is there. The
subsets are those of the subsets.json that ``benchmarks/subsets.py`` writes, the faults those of the faults.json that
``python -m tests.faults`` writes. With ``--check`` nothing is written: the exit code is 1 if the README is not in step.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from converge_to_surprise.reproduce import published, tables
from converge_to_surprise.reproduce.tables import TITLES, Cell, shown
from converge_to_surprise.reproduce.variants import VARIANTS

ROOT = Path(__file__).parents[1]
BEGIN = "<!-- {}: made by benchmarks/readme_table.py -->"
END = "<!-- end of {} -->"


def runs(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["runs"] if path.is_file() else []
    return found


def three(values: tuple[published.Spread | None, ...]) -> str:
    """ACC / NMI / ARI as means."""
    known = [value for value in values if value is not None]
    return " / ".join(f"{value.mean:.1f}" for value in known) if len(known) == len(values) else tables.ABSENT


def main_table(rows: list[dict[str, Any]]) -> str:
    """One line per data set, the paper's numbers beside ours."""
    lines = []
    found = tables.cells(rows)
    for dataset, title in TITLES.items():
        if (dataset, "full") in found:
            cell = found[dataset, "full"]
            theirs = published.ablation("full", dataset)
            both = three(tuple(cell.spread(f"{name}_both", 100) for name in tables.METRICS))
            paper = f"{three(theirs[2:5])}, {shown(theirs.clusters)}" if theirs else tables.ABSENT
            lines.append([title, *tables.measured(cell)[:6], both, paper])
            if (first := cell.first_starts()) is not None:
                lines.append([f"{title}, one start", *tables.measured(first)[:6], tables.ABSENT, tables.ABSENT])
    header = ["data", *tables.MEASURED[:6], "both views: ACC / NMI / ARI", "the paper: ACC / NMI / ARI, K̂"]
    return tables.markdown(header, lines)


def ablation_table(rows: list[dict[str, Any]]) -> str:
    """One line per variant, one column per data set."""
    found = tables.cells(rows)
    sets = [name for name in TITLES if (name, "full") in found]

    def cell_text(cell: Cell | None) -> str:
        if cell is None:
            return tables.ABSENT
        scores = three(tuple(cell.spread(name, 100) for name in tables.METRICS))
        return f"{scores}, {shown(cell.spread('n_clusters'))} (n={len(cell.rows)})"

    lines = [
        [variant.title, *(cell_text(found.get((dataset, name))) for dataset in sets)]
        for name, variant in VARIANTS.items()
        if any((dataset, name) in found for dataset in sets)
    ]
    return tables.markdown(["ACC / NMI / ARI, K̂ (seeds)", *(TITLES[name] for name in sets)], lines)


def results(folder: Path) -> str:
    """All results as Markdown."""
    parts = [main_table(runs(folder / "table1.json"))]
    parts += [ablation_table(rows)] if (rows := runs(folder / "ablation.json")) else []
    return "\n\n".join(parts)


def subsets(folder: Path) -> str:
    """How many clusters were found among other numbers and sizes of classes."""
    by_name: dict[str, Cell] = {}
    for row in runs(folder / "subsets.json"):
        by_name.setdefault(row["subset"], Cell([])).rows.append(row)
    lines = []
    for name, cell in by_name.items():
        sizes = cell.rows[0]["class sizes"]
        scores = three(tuple(cell.spread(metric, 100) for metric in tables.METRICS))
        found = shown(cell.spread("n_clusters"))
        lines.append([name, str(len(sizes)), f"{min(sizes)}-{max(sizes)}", found, scores, cell.seeds()])
    return tables.markdown(["digits", "classes", "images of a class", "K̂", "ACC / NMI / ARI", "seeds"], lines)


def faults(folder: Path) -> str:
    """What real runs were hurt by, and how many of them lost anything."""
    path = folder / "faults.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["faults"] if path.is_file() else []
    total = {"fault": "all"} | {name: sum(row[name] for row in rows) for name in ("tried", "survived", "lost")}
    lines = [[row["fault"], *(f"{row[name]:,}" for name in ("tried", "survived", "lost"))] for row in [*rows, total]]
    return tables.markdown(["fault", "tried", "survived", "lost"], lines)


def renewed(text: str, what: str, content: str) -> str:
    """The README with the content between the markers of one table replaced."""
    before, begin, rest = text.partition(BEGIN.format(what))
    _, end, after = rest.partition(END.format(what))
    if not begin or not end:
        raise SystemExit(f"README.md needs the two lines {BEGIN.format(what)} and {END.format(what)}")
    return f"{before}{begin}\n{content}\n{end}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    text = options.readme.read_text(encoding="utf-8")
    new = renewed(text, "results", results(options.results))
    new = renewed(new, "subsets", subsets(options.results))
    new = renewed(new, "faults", faults(options.results))
    if options.check:
        print("in step" if new == text else f"{options.readme} is not in step: run python benchmarks/readme_table.py")
        return int(new != text)
    options.readme.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
