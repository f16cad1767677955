"""The headline of a report in plain words, its settings, and the curves against time (figures 6 to 8)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..config.files import to_dict
from ..runs.folder import Description

POINTS = 800
"""Largest number of points per curve."""
MARKS = 400
"""Largest number of marks on the time axis."""
SERIES = ("surprise", "orderliness", "agreement", "surprising", "active")
REBUILDING = ("consolidate", "merge")

Records = Sequence[dict[str, Any]]


def duration(seconds: float) -> str:
    """
    >>> duration(9.4), duration(98), duration(3 * 3600 + 300)
    ('9 s', '1 min 38 s', '3 h 5 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def chance_exponent(nats: Iterable[float]) -> int:
    """n in "with probability below 10^-n": how likely noise would match so often in every cluster at once.

    Matches in one cluster leave fewer for the others (multinomial counts are negatively associated), so the
    probability of all of them together is at most the product of the clusters' own: exponents add up.

    >>> chance_exponent([257.8, 262.3])
    225
    """
    return math.floor(sum(nats) / math.log(10))


def counted(number: int, thing: str) -> str:
    """
    >>> counted(1, "cluster"), counted(1797, "image")
    ('1 cluster', '1,797 images')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def facts(description: Description, scores: dict[str, Any] | None, seconds: float, steps: int) -> list[tuple[str, str]]:
    """Names and values of the small figures under the head line."""
    measures = [("Surprise S", "surprise", ".3f"), ("Orderliness Ω", "orderliness", ".3f")]
    measures.append(("Agreement of the views", "agreement", ".1%"))
    return [
        *((title, format(scores[name], form)) for title, name, form in measures if scores is not None),
        _items(description),
        ("Time", duration(seconds)),
        ("Steps", f"{steps:,}"),
        ("Seed", _seed(description, scores)),
        ("Threads", str(description.config.threads)),
        ("Precision", description.config.precision),
        ("Version", description.program),
    ]


def _items(description: Description) -> tuple[str, str]:
    """What was clustered, and how many."""
    if description.reading.input == "embeddings":
        return "Embeddings", f"{description.images:,} of {description.shape[2]} values"
    height, width = description.shape[1:]
    return "Images", f"{description.images:,} of {width}×{height}"


def _seed(description: Description, scores: dict[str, Any] | None) -> str:
    inits = scores and scores.get("initializations")
    if not inits:
        return str(description.config.seed)
    return f"{inits['seeds'][inits['selected']]} (initialization {inits['selected'] + 1} of {len(inits['seeds'])})"


def finished_sentence(nats: Iterable[float]) -> str:
    exponent = chance_exponent(nats)
    if exponent < 1:
        return "The two views of the images agree no more often than by chance."
    return f"Agreement this strong would arise by chance with probability below 10^-{exponent:,}."


def thinned(records: Records, most: int) -> list[dict[str, Any]]:
    """The last record of each of at most ``most`` equal stretches; the last record of a stage is always kept."""
    stretch = max(1, -(-len(records) // most))
    return [
        record
        for position, record in enumerate(records)
        if (position + 1) % stretch == 0
        or position + 1 == len(records)
        or records[position + 1]["stage"] != record["stage"]
    ]


def curves(records: Records) -> dict[str, Any]:
    """Series over seconds, when each stage began and ended, when clusters were consolidated or merged."""
    kept = thinned(records, POINTS)
    return {
        "seconds": [record["seconds"] for record in kept],
        # Six digits are more than a screen shows.
        **{name: [float(f"{record[name]:.6g}") for record in kept] for name in SERIES},
        "stages": stages(records),
        "marks": marks(records),
    }


def stages(records: Records) -> list[dict[str, Any]]:
    """Name, begin and end of every stage so far, in seconds."""
    found: list[dict[str, Any]] = []
    previous = 0.0
    for record in records:
        if not found or found[-1]["name"] != record["stage"]:
            found.append({"name": record["stage"], "from": previous})
        previous = found[-1]["to"] = record["seconds"]
    return found


def marks(records: Records) -> list[dict[str, Any]]:
    """When a round of consolidation or a merge ended; evenly thinned where there are very many."""
    found = []
    for position, record in enumerate(records):
        next_kind = records[position + 1]["kind"] if position + 1 < len(records) else ""
        if record["kind"] in REBUILDING and next_kind != record["kind"]:
            found.append({"seconds": record["seconds"], "kind": record["kind"]})
    return found[:: -(-len(found) // MARKS) or 1]


def flat_settings(description: Description) -> dict[str, str]:
    """Every setting by its name on the command line, and what else determines the run."""
    about = {
        "source": description.source,
        "images": f"{description.images:,} of {'x'.join(map(str, description.shape))}",
        "preset": description.preset,
        "program": description.program,
    }
    return {**about, **dict(_flat(to_dict(description.config), ""))}


def _flat(tree: dict[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, " ".join(map(str, value)) if isinstance(value, list) else str(value)
