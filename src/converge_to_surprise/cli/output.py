"""Tables and messages in the terminal."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..config.text import one_line

if TYPE_CHECKING:
    from ..model.assessment import Assessment
    from ..model.cluster_model import Model


def say(console: Console, text: str) -> None:
    """Print a line as it is, without markup or wrapping."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def shown_warnings(console: Console) -> Iterator[None]:
    """Within the block, warnings are printed as one line without their place in the program."""

    def show(message: Warning | str, *_: object) -> None:
        console.print(one_line(f"warning: {message}"), markup=False, highlight=False, soft_wrap=True)

    with warnings.catch_warnings():
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def warn(problems: Sequence[str]) -> None:
    """Print warnings on the error stream."""
    for problem in problems:
        text = one_line(f"warning: {problem}")
        Console(stderr=True).print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)


def cluster_table(
    assessment: Assessment, model: Model | None = None, class_names: Sequence[str] | None = None
) -> Table:
    """The clusters, largest first; class and purity where classes are known.

    ``model``: its names of clusters are shown. ``class_names``: shown in place of the numbers of classes.
    """
    from ..runs.labels import cluster_name

    known = assessment.classes is not None
    table = Table(title=f"{len(assessment.clusters)} clusters in {len(assessment.labels):,} images")
    for name in ("cluster", "size", "surprise", "−log p", "agreement", *(("class", "purity") if known else ())):
        table.add_column(name, justify="right")
    for row in sorted(assessment.clusters, key=lambda row: -row.size):
        cluster = str(row.cluster) if model is None else one_line(cluster_name(model, row.cluster))
        cells = [cluster, f"{row.size:,}", f"{row.surprise:.4f}", f"{row.nats:,.0f}", f"{row.agreement:.1%}"]
        if row.dominant is not None and row.purity is not None:
            name = str(row.dominant) if class_names is None else one_line(class_names[row.dominant])
            cells += [name, f"{row.purity:.1%}"]
        table.add_row(*map(escape, cells), style="" if row.surprising else "dim")
    return table


def score_lines(assessment: Assessment) -> str:
    """The scores in a few lines; those against classes only where they are known."""
    scores = assessment.scores()
    text = (
        f"S {scores['surprise']:.3f}  Ω {scores['orderliness']:.3f}  agreement {scores['agreement']:.1%}  "
        f"clusters {scores['n_clusters']}, surprising {scores['n_surprising']}"
    )
    if scores["acc"] is None:
        return text
    classes = "  ".join(f"{name.upper()} {scores[name]:.1%}" for name in ("nmi", "ari", "acc", "purity"))
    both = "  ".join(f"{name.upper()} {scores[f'{name}_both']:.1%}" for name in ("nmi", "ari", "acc"))
    return f"{text}\n{classes}\nby both views: {both}, clusters {scores['n_clusters_both']}"
