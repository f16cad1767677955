"""The headline of a report in plain words."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ..runs.folder import Description


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
    height, width = description.shape[1:]
    measures = (
        []
        if scores is None
        else [
            ("Surprise S", f"{scores['surprise']:.3f}"),
            ("Orderliness Ω", f"{scores['orderliness']:.3f}"),
            ("Agreement of the views", f"{scores['agreement']:.1%}"),
        ]
    )
    return [
        *measures,
        ("Images", f"{description.images:,} of {width}×{height}"),
        ("Time", duration(seconds)),
        ("Steps", f"{steps:,}"),
        ("Seed", _seed(description, scores)),
        ("Threads", str(description.config.threads)),
        ("Version", description.program),
    ]


def _seed(description: Description, scores: dict[str, Any] | None) -> str:
    inits = scores and scores.get("initializations")
    if not inits:
        return str(description.config.seed)
    return f"{inits['seeds'][inits['selected']]} (initialization {inits['selected'] + 1} of {len(inits['seeds'])})"


def finished_title(clusters: int, images: int) -> str:
    return f"{counted(clusters, 'cluster')} in {counted(images, 'image')}"


def finished_sentence(nats: Iterable[float]) -> str:
    exponent = chance_exponent(nats)
    if exponent < 1:
        return "The two views of the images agree no more than chance would let them."
    return f"Agreement this strong would arise by chance with probability below 10^-{exponent:,}."


def running_title(surprising: int, images: int) -> str:
    return f"{counted(surprising, 'surprising cluster')} so far in {counted(images, 'image')}"


def running_sentence(step: int, total: int, stage: str) -> str:
    return f"Not finished: step {step:,} of {total:,}, stage {stage}."
