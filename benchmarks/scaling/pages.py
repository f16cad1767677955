"""The costs as Markdown."""

from __future__ import annotations

from typing import Any

from converge_to_surprise.reproduce.tables import markdown

from converge_to_surprise.config import Config, presets
from converge_to_surprise.search.schedule import batch_sizes, batches_per_epoch

from . import cost, rates
from .cost import Cost, Images, Site

MANY = 1_000_000_000
SIDES = (32, 64)
LARGE = 16_000
NEAR, FAR = Site(delay=0.001), Site(delay=0.05)
WHERE = ((1, NEAR), (8, NEAR), (16, NEAR), (8, FAR))
"""Hosts and what lies between them."""
UNITS = (("years", 365.25 * 86_400), ("days", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def duration(seconds: float) -> str:
    """
    >>> duration(90), duration(150), duration(3e5), duration(0.02), duration(3e12)
    ('90 s', '2.5 min', '3.5 days', '0.02 s', '95,064 years')
    """
    unit, size = next(((unit, size) for unit, size in UNITS if seconds >= 2 * size), UNITS[-1])
    value = seconds / size
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.2g} {unit}"


def search_steps(config: Config, images: int) -> int:
    """Steps of all searches of a schedule, of one start."""
    sizes = batch_sizes(config)
    return sum(s.epochs * batches_per_epoch(images, sizes[s.kind]) for s in config.schedule if s.kind in sizes)


def of_costs(measured: dict[str, Any]) -> dict[str, str]:
    """All tables by name."""
    return {
        "speed": speed(),
        "macs": macs(),
        "repeated": repeated(measured),
        "shares": shares(measured),
        "costs": costs(),
        "reading": reading(),
        "memory": memory(),
    }


def speed() -> str:
    """What was measured on two CPU cores, images of 28x28."""
    evolution, relaxed, predict = (rates.result(name) for name in ("evolution_step", "relaxed_step_first", "predict"))
    ways, first = relaxed["other ways, views/s"], "relaxed_step_first.json"  # of the machine of the evolution's figures
    rows = [
        ["forward pass alone, the paper's network", f"{evolution['bare']:,} views/s", "evolution_step.json"],
        ["whole update of the evolution", f"{evolution['update']:,} views/s", "evolution_step.json"],
        ["forward and backward pass, the paper's network", f"{ways['not folded']:,} views/s", first],
        ["forward and backward pass, folded network", f"{relaxed['bare']:,.0f} views/s", first],
        ["whole step of the relaxed search", f"{relaxed['step']:,.0f} views/s", first],
        ["labeling from an array, both views", f"{predict['arrays']:,} images/s", "predict.json"],
        ["labeling from PNG files", f"{predict['files']:,} images/s", "predict.json"],
    ]
    return markdown(["two cores, 28x28", "rate", "benchmarks/results/"], rows)


def macs() -> str:
    """Work per view and the GPU's assumed rates."""
    rows = []
    for side, channels in ((28, 1), (32, 3), (64, 3)):
        plain, folded = rates.macs(side, channels), rates.macs(side, channels, True)
        rows.append(
            [
                f"{side}x{side}x{channels}",
                f"{plain / 1e6:.2f}",
                f"{folded / 1e6:.2f}",
                f"{rates.forward_rate(side, channels):,.0f}",
                f"{rates.forward_rate(side, channels, True):,.0f}",
                f"{rates.training_rate(side, channels):,.0f}",
            ]
        )
    header = ["view", "MMAC, paper", "MMAC, folded", "evolution, views/s", "labeling, views/s", "relaxed, views/s"]
    return markdown(header, rows)


def repeated(measured: dict[str, Any]) -> str:
    """The efficiency that is left of an update if messages took no time."""
    parts = measured["update_seconds"]
    pairs = rates.PAPER_MEMBERS // 2
    again = parts["views"] + parts["refresh"] + parts["update"]
    rows = []
    for hosts in (1, 2, 4, 8, 16):
        alone, each = pairs * parts["pair"] + again, pairs / hosts * parts["pair"] + again
        rows.append([str(hosts), f"{alone / (hosts * each):.2f}", f"{1 / hosts / cost.shared_members(hosts):.2f}"])
    share = again / (pairs * parts["pair"] + again)
    words = ", ".join(f"{name} {parts[name]:.2f} s" for name in ("views", "refresh", "update"))
    text = f"Repeated on every host: {words}; a pair of members {parts['pair']:.2f} s: {share:.1%} of an update."
    return text + "\n\n" + markdown(["hosts", "efficiency on CPUs", "with refresh alone repeated"], rows)


def shares(measured: dict[str, Any]) -> str:
    """What a small share of a batch costs."""
    speeds = measured["relaxed_views_per_processor_second"]
    best = speeds["250"]
    rows = [[batch, f"{value:,.0f}", f"{value / best:.2f}"] for batch, value in speeds.items()]
    return markdown(["images per host and step", "views per CPU second", "against 250"], rows)


def cases(images: Images) -> list[tuple[str, list[Cost]]]:
    """The searches, each under all of ``WHERE``."""
    shape = (images.channels, images.side, images.side)
    fast = presets.resolve("fast", None, "own", images.count, shape)
    paper = presets.resolve("paper", None, "own", images.count, shape)
    mnist = search_steps(presets.resolve("fast", None, "mnist", 60_000, (1, 28, 28)), 60_000)
    updates, steps, batch = search_steps(paper, images.count), search_steps(fast, images.count), fast.relaxed.batch

    def evolution(name: str, count: int) -> tuple[str, list[Cost]]:
        costs = [cost.evolution_step(images, hosts, site).times(count) for hosts, site in WHERE]
        return f"evolution, {name}: {count:,} updates of 3,000", costs

    def relaxed(name: str, count: int, size: int) -> tuple[str, list[Cost]]:
        costs = [cost.relaxed_step(images, hosts, site, size).times(count) for hosts, site in WHERE]
        return f"relaxed, {name}: {count:,} steps of {size:,}", costs

    return [
        evolution("the preset's epochs", updates),
        evolution("as many as for MNIST", rates.PAPER_UPDATES),
        relaxed("a start of the preset", steps, batch),
        relaxed("the same, large batches", steps * batch // LARGE, LARGE),
        relaxed("as many as for MNIST", mnist, batch),
        relaxed("the same, large batches", mnist, LARGE),
        ("labeling all", [cost.labeling(images, hosts, site) for hosts, site in WHERE]),
    ]


def costs() -> str:
    """Wall clock and the largest part of it."""
    names = [f"{hosts} GPU{'s' if hosts > 1 else ''}, {1000 * site.delay:g} ms" for hosts, site in WHERE]
    names[0] = "1 GPU"
    rows = [
        [name, f"{side} px", *(f"{duration(found.total)} ({found.bottleneck})" for found in several)]
        for side in SIDES
        for name, several in cases(Images(MANY, side))
    ]
    return markdown(["what", "size", *names], rows)


def reading() -> str:
    """What the images weigh."""
    rows = []
    for side in SIDES:
        for channels in (1, 3):
            images = Images(MANY, side, channels)
            whole = images.count * images.bytes_each
            rate = rates.forward_rate(side, channels, True) / 2
            rows.append(
                [
                    f"{side}x{side}x{channels}",
                    f"{images.bytes_each:,}",
                    f"{whole / 1e12:.1f} TB",
                    duration(whole / NEAR.disk_bytes),
                    f"{rate * images.bytes_each / 1e6:,.0f} MB/s",
                ]
            )
    header = ["images", "bytes each", "all", "read once in order by one host", "one GPU labels"]
    return markdown(header, rows)


def memory() -> str:
    """What a training process holds for all images at once."""
    small, large = (cost.memory(Images(count, 32)) for count in (1_000_000, MANY))
    rows = [[name, f"{small[name] / 1e9:.2f} GB", f"{large[name] / 1e9:,.0f} GB"] for name in small]
    return markdown(["in memory", "1,000,000 images", f"{MANY:,} images"], rows)
