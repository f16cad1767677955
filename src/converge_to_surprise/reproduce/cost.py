"""What runs will cost, roughly, before they are begun."""

from __future__ import annotations

from collections.abc import Sequence

from ..config import Config
from .plan import Job

FORWARD, BACKWARD, FOLDED = 3700, 1500, 2400
"""Views of 28x28 a second on one core of a common CPU: labeled, trained on, trained on by a folded network."""


def seconds(config: Config, images: int, shape: tuple[int, int, int]) -> float:
    """A guess at the time of a run on one core: views to label and to train on, in proportion to their size."""
    views = 2 * images
    labeled = trained = 0
    for stage in config.schedule:
        if stage.kind == "evolution":
            labeled += stage.epochs * views * (config.evolution.population + 1)
            trained += stage.epochs // stage.every * stage.passes * views if stage.every else 0
        elif stage.kind in ("relaxed", "refine", "consolidate"):
            trained += stage.epochs * views
    pixels = shape[1] * shape[2] * config.views.upsample**2
    training = trained / (FOLDED if config.network.folded else BACKWARD)
    return (labeled / FORWARD + training) * pixels / 784 * (config.network.width / 8) ** 2


def in_words(duration: float) -> str:
    """
    >>> in_words(40), in_words(600), in_words(20_000), in_words(1e6)
    ('a minute', '10 minutes', '5.6 hours', '12 days')
    """
    if duration < 90:
        return "a minute"
    if duration < 7200:
        return f"{duration / 60:.0f} minutes"
    return f"{duration / 3600:.1f} hours" if duration < 2 * 86400 else f"{duration / 86400:.0f} days"


def announcement(jobs: Sequence[Job], sizes: dict[str, tuple[int, tuple[int, int, int]]], width: int) -> str:
    """How many runs there are, how many remain, and about how long they will take, ``width`` at a time."""
    states = [job.state for job in jobs]
    parts = f"{states.count('finished')} finished, {states.count('interrupted')} interrupted, "
    left = [job for job, state in zip(jobs, states, strict=True) if state != "finished"]
    text = f"{len(jobs)} run{'s' * (len(jobs) != 1)}: {parts}{states.count('missing')} to begin"
    if not left:
        return text
    longest = max(seconds(job.config, *sizes[job.dataset]) for job in left)
    total = sum(seconds(job.config, *sizes[job.dataset]) for job in left)
    return f"{text}; {width} at a time, very roughly {in_words(max(longest, total / width))}"
