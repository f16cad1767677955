"""The numbers that others published, in %, with their source. Our own are never written here: they are measured."""

from __future__ import annotations

from typing import NamedTuple


class Spread(NamedTuple):
    """A mean and, where it was published, a standard deviation."""

    mean: float
    std: float | None = None


class Published(NamedTuple):
    """What one method reached on one data set."""

    method: str
    dataset: str
    acc: Spread | None
    nmi: Spread | None
    ari: Spread | None
    clusters: Spread | None = None
    """The number of clusters that was inferred; None where it is given or not published."""
    given: bool = False
    """Whether the method is told the number of clusters."""
    time: str = ""
    source: str = ""


PAPER = "the paper"
TABLES = "Converge to Surprise, tables 1 and 2"
ABLATION = "Converge to Surprise, table 3"
SETS = ("mnist", "fashion-mnist", "usps")

# For each of SETS: ACC, NMI, ARI and, where published, the inferred number of clusters, each with its deviation.
_TABLES: dict[str, list[list[float]]] = {
    PAPER: [
        [98.3, 0.5, 95.8, 0.7, 96.3, 1.1, 10.0, 0.0],
        [64.1, 1.9, 65.0, 1.0, 52.9, 1.9, 11.6, 0.5],
        [94.9, 1.8, 90.2, 1.3, 90.3, 2.8, 10.4, 0.5],
    ],
    "DeepDPM": [[98, 0, 94, 0, 95, 0, 10.0, 0.0], [62, 3, 68, 1, 51, 2, 10.2, 0.8], [89, 2, 88, 0, 86, 1, 9.2, 0.4]],
    "DPM sampler": [
        [93, 5, 92, 1, 91, 4, 11.3, 0.8],
        [59, 3, 67, 1, 49, 2, 12.4, 1.0],
        [83, 3, 87, 1, 82, 2, 8.5, 0.9],
    ],
    "moVB": [[97, 0, 93, 0, 94, 0, 14.0, 1.0], [55, 3, 66, 2, 47, 3, 16.9, 2.3], [90, 4, 87, 2, 86, 4, 11.2, 1.1]],
    "DBSCAN": [[89, 0, 92, 0, 86, 0, 9.0, 0.0], [39, 0, 63, 0, 32, 0, 4.0, 0.0], [57, 0, 72, 0, 46, 0, 6.0, 0.0]],
    "UNSEEN+DCN": [
        [86.0, 5.4, 87.8, 1.9, 83.7, 4.5],
        [57.3, 2.4, 63.7, 1.0, 46.9, 1.5],
        [77.5, 5.6, 76.5, 1.4, 69.8, 4.9],
    ],
    "UNSEEN+DEC": [
        [71.0, 4.4, 80.4, 1.8, 70.9, 3.5],
        [54.4, 3.8, 58.6, 2.6, 42.3, 3.4],
        [81.3, 2.4, 80.8, 0.9, 75.9, 2.4],
    ],
    "UNSEEN+DKM": [
        [83.0, 5.5, 84.2, 2.6, 78.5, 5.2],
        [53.1, 2.0, 62.2, 1.0, 43.9, 1.4],
        [71.5, 9.4, 73.3, 5.3, 62.6, 10.6],
    ],
}
_PAPER_TIME = {"mnist": "5 h (GPU)", "fashion-mnist": "5 h (GPU)", "usps": "2 h (GPU)"}

# The paper's variants by our names of them: ACC, NMI and ARI with deviations; None where it does not apply.
_ABLATION: dict[str, list[list[float] | None]] = {
    "without-augmentation": [
        [30.1, 1.5, 49.1, 2.5, 25.1, 1.9],
        [26.9, 1.7, 49.8, 0.6, 23.5, 1.1],
        [55.2, 5.9, 65.3, 3.0, 47.7, 5.1],
    ],
    "without-consolidation": [
        [80.9, 6.1, 77.4, 3.0, 74.3, 5.3],
        [56.6, 1.5, 58.1, 2.1, 44.9, 2.2],
        [59.3, 9.3, 66.2, 5.1, 51.7, 9.2],
    ],
    "without-zoom-out": [None, None, [83.4, 3.3, 80.4, 2.8, 73.0, 4.8]],
}


def _spreads(numbers: list[float]) -> list[Spread | None]:
    found: list[Spread | None] = [Spread(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]
    return found + [None] * (4 - len(found))


def _tables() -> list[Published]:
    found = []
    for method, rows in _TABLES.items():
        for dataset, numbers in zip(SETS, rows, strict=True):
            time = _PAPER_TIME[dataset] if method == PAPER else ""
            acc, nmi, ari, clusters = _spreads(numbers)
            found.append(Published(method, dataset, acc, nmi, ari, clusters, False, time, TABLES))
    return found


def _given(method: str, dataset: str, source: str, *values: float | None) -> Published:
    """A method that is told the number of clusters."""
    acc, nmi, ari = [None if value is None else Spread(value) for value in values]
    return Published(method, dataset, acc, nmi, ari, given=True, source=source)


_SPC = "Mahon and Lukasiewicz, Selective Pseudo-label Clustering (15 autoencoders)"
_IIC = "Ji et al., Invariant Information Clustering"
_DEC_DA = "Guo et al., Deep Embedded Clustering with Data Augmentation"
_UMAP = "UMAP and HDBSCAN on pixels, measured for this project on one core"

RESULTS: list[Published] = [
    *_tables(),
    _given("SPC", "mnist", _SPC, 99.2, 97.5, None),
    _given("SPC", "fashion-mnist", _SPC, 67.9, 73.5, None),
    _given("SPC", "usps", _SPC, 98.4, None, None),
    _given("IIC", "mnist", _IIC, 99.2, None, None),
    _given("DEC-DA", "mnist", _DEC_DA, 98.5, 96.0, None),
    _given("DEC-DA", "fashion-mnist", _DEC_DA, 58.6, 63.6, None),
    _given("DEC-DA", "usps", _DEC_DA, 98.7, 96.2, None),
    *(
        Published("UMAP+HDBSCAN", dataset, Spread(a), Spread(n), Spread(r), Spread(k), time=time, source=_UMAP)
        for dataset, a, n, r, k, time in (
            ("mnist", 69.8, 82.7, 65.5, 7, "4 min"),
            ("fashion-mnist", 34.6, 60.3, 28.3, 5, "3 min"),
            ("usps", 72.4, 79.5, 68.0, 7, "1.4 min"),
        )
    ),
]


def results(dataset: str) -> list[Published]:
    """What others reached on a data set: the paper first."""
    return [row for row in RESULTS if row.dataset == dataset]


def clusters(method: str, dataset: str) -> Spread | None:
    """The number of clusters that a method inferred."""
    return next((row.clusters for row in RESULTS if (row.method, row.dataset) == (method, dataset)), None)


def ablation(variant: str, dataset: str) -> Published | None:
    """What the paper reached with a component removed."""
    if dataset not in SETS:
        return None
    if variant == "full":
        return next(row for row in RESULTS if (row.method, row.dataset) == (PAPER, dataset))
    numbers = _ABLATION[variant][SETS.index(dataset)] if variant in _ABLATION else None
    if numbers is None:
        return None
    acc, nmi, ari, _ = _spreads(numbers)
    return Published(PAPER, dataset, acc, nmi, ari, source=ABLATION)
