"""The tables of docs/explanation/hypotheses.md from hypotheses.csv; benchmarks/readme_table.py writes them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from converge_to_surprise.experiments.result_tables import ABSENT, markdown

CUT = ", cut at "
"""In the name of a set whose first search was given too few clusters."""
TITLES = {
    "made": "made set",
    "made, refined": "made set, refined",
    "usps": "USPS",
    "fashion": "Fashion-MNIST, 6,000 images",
    "mnist-fashion": "MNIST and Fashion-MNIST, 3,000 of each",
    "mednist": "MedNIST",
    "mednist on EfficientNet features": "MedNIST on EfficientNet features",
    "sign-digits": "sign-digits",
    "sign-digits on EfficientNet features": "sign-digits on EfficientNet features",
    "digits": "digits (scikit-learn)",
}
"""Of the sets, in the order of the tables."""
ARROW = " → "


def read(folder: Path, what: str) -> pd.DataFrame:
    """The last row about every set and seed, in the order of ``TITLES``."""
    found = pd.read_csv(folder / "hypotheses.csv", na_values=[""], keep_default_na=False)  # "null" is a word here
    found = found[found["what"] == what].drop_duplicates(["set", "seed"], keep="last")
    place = {name: number for number, name in enumerate(TITLES)}
    order = found["set"].map(lambda name: place.get(name.split(CUT)[0], len(place)))
    return found.assign(order=order).sort_values(["order", "set", "seed"], kind="stable")


def steps(text: str, factor: float = 1, digits: int = 0) -> str:
    """Numbers of successive rounds.

    >>> steps("1 4 6"), steps("0.85 1", 100, 1)
    ('1 → 4 → 6', '85.0 → 100.0')
    """
    return ARROW.join(f"{factor * float(number):,.{digits}f}" for number in str(text).split())


def both(row: pd.Series, name: str) -> str:
    """A score of the clusters and of the leaves, in %."""
    found = [row[f"{name}_first"], row[f"{name}_leaves"]]
    return ABSENT if pd.isna(found).any() else ARROW.join(f"{100 * value:.1f}" for value in found)


def rounds(folder: Path) -> str:
    """A line per run: what every round tried and found."""
    lines = []
    for _, row in read(folder, "tree").iterrows():
        if CUT not in row["set"]:
            counts = [steps(row[name]) for name in ("tried", "splits", "leaves", "nats")]
            known = [steps(row["nmi"], 100, 1), both(row, "ari")]
            about = [TITLES.get(row["set"], row["set"]), str(row["seed"]), f"{row['images']:,.0f}"]
            lines.append([*about, *counts, *known])
    header = "set|seed|images|nodes tried|splits|leaves|nats|NMI in %|ARI in %, clusters and leaves"
    return markdown(header.split("|"), lines)


def coarse(folder: Path) -> str:
    """A line per run whose first search was given fewer clusters than there are classes."""
    lines = []
    for _, row in read(folder, "tree").iterrows():
        name, _, given = row["set"].partition(CUT)
        if given:
            known = [steps(row["leaves"]), steps(row["nmi"], 100, 1), both(row, "ari")]
            lines.append([TITLES.get(name, name), f"{row['classes']:.0f}", given, str(row["seed"]), *known])
    header = "set|classes|clusters given|seed|leaves|NMI in %|ARI in %, clusters and leaves"
    return markdown(header.split("|"), lines)


def cost(folder: Path) -> str:
    """CPU seconds of the search and of its rounds, a line per run of which all were measured."""
    lines = []
    found = read(folder, "tree")
    for _, row in found[found["search_cpu"].notna() & found["round_cpu"].notna()].iterrows():
        name, _, given = row["set"].partition(CUT)
        title = TITLES.get(name, name) + (f", {given} clusters given" if given else "")
        spent = [f"{row[column]:.0f}" for column in ("search_cpu", "round_cpu", "rounds_cpu")]
        lines.append([title, str(row["seed"]), *spent, f"{row['round_cpu'] / row['search_cpu']:.2f}"])
    header = "set|seed|search|most expensive round|all rounds|most expensive round / search"
    return markdown(header.split("|"), lines)


def level(folder: Path) -> str:
    """Tests where H1 is true, a line per way in which it was made true."""
    lines = []
    for _, row in read(folder, "null").iterrows():
        shares = [f"{100 * row[f'p_{bound}']:.1f} %" for bound in ("0.01", "0.05", "0.2")]
        counts = [f"{float(row[name]):.0f}" for name in ("trials", "tried", "rejected", "splits")]
        lines.append([row["set"], *counts, *shares])
    header = "views|rounds|tests|hypothesis rejected|split|p ≤ 0.01|p ≤ 0.05|p ≤ 0.2"
    return markdown(header.split("|"), lines)
