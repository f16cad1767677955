"""The measured network as Markdown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from converge_to_surprise.reproduce.tables import ABSENT, markdown

Row = dict[str, Any]
LOAD = ("search", "machine", "batch", "way")


def line(row: Row) -> str:
    """A measured row for the screen."""
    return (
        f"{row['search']:<9} {row['machine']} batch {row['batch']:>5} {row['way']:<6} {row['hosts']} hosts, "
        f"{row['delay_ms']:g} ms, loss {row['loss']:g}: {row['compute']:.3f} s computed in {row['mean']:.3f} s "
        f"(median {row['median']:.3f}), efficiency {row['efficiency']:.2f}, {row['bytes_per_host']:,.0f} bytes"
    )


def typical(row: Row) -> float:
    """Seconds of a step: without loss the median, because the machine was busy with other work; with loss the mean,
    because the rare long waits are what loss costs."""
    return float(row["mean"] if row["loss"] else row["median"])


def of_hosts(found: dict[str, Any]) -> dict[str, str]:
    """All tables by name."""
    rows: list[Row] = found["rows"]
    return {
        "relay": relay(found["relay"]),
        "traffic": traffic(rows),
        "waiting": waiting(rows),
        "efficiency": efficiency(rows),
        "fits": fits(found.get("fits", [])),
    }


def relay(rows: list[dict[str, float]]) -> str:
    """The network itself."""
    lines = [[f"{r['delay_ms']:g} ms", f"{r['round_trip_ms']:.2f} ms", f"{r['stream_mbit_per_s']:,.0f}"] for r in rows]
    return markdown(["delay one way", "round trip of one byte", "one stream, Mbit/s"], lines)


def grid(rows: list[Row], across: list[tuple[float, float]], cell: Callable[[Row], str]) -> list[list[str]]:
    """A line per load and number of hosts; a column per (delay, loss)."""
    found = {(*(row[key] for key in LOAD), row["hosts"], row["delay_ms"], row["loss"]): row for row in rows}
    lines = []
    for load in dict.fromkeys(key[:5] for key in found):
        words = [cell(found[(*load, *where)]) if (*load, *where) in found else ABSENT for where in across]
        search, machine, batch, way, hosts = load
        lines.append([f"{search}, {machine.upper()}, {batch:,} images", way, str(hosts), *words])
    return sorted(lines, key=lambda words: (words[0], words[1]))


def traffic(rows: list[Row]) -> str:
    """Bytes and packets of a step without loss."""
    lines: dict[tuple[str, str, int], list[str]] = {}
    for row in sorted(rows, key=lambda row: (row["search"], row["way"], row["hosts"])):
        if not row["loss"]:
            sent = [f"{row['bytes_per_host']:,.0f}", f"{row['packets_per_host']:,.0f}"]
            lines.setdefault((row["search"], row["way"], row["hosts"]), sent)
    header = ["search", "way", "hosts", "bytes per host and step", "packets per host and step"]
    return markdown(header, [[search, way, str(hosts), *sent] for (search, way, hosts), sent in lines.items()])


def waiting(rows: list[Row]) -> str:
    """Seconds that a step waits for messages, without loss, beside what the round trips alone would take."""
    delays = sorted({row["delay_ms"] for row in rows})

    def cell(row: Row) -> str:
        alone = row["rounds"] * 2 * row["delay_ms"] / 1000
        return f"{max(0.0, typical(row) - row['compute']):.3f} ({alone:.3f})"

    header = ["load", "way", "hosts", *(f"{delay:g} ms" for delay in delays)]
    return markdown(header, grid(rows, [(delay, 0.0) for delay in delays], cell))


def efficiency(rows: list[Row]) -> str:
    """Computing / (computing + waiting), as wall clock."""
    across = sorted({(row["delay_ms"], row["loss"]) for row in rows if row["delay_ms"]})
    header = ["load", "way", "hosts", *(f"{delay:g} ms, {100 * loss:g} %" for delay, loss in across)]
    return markdown(header, grid(rows, across, lambda row: f"{row['compute'] / typical(row):.2f}"))


def fits(rows: list[Row]) -> str:
    """Whole commands on several hosts."""
    header = ["cts", "hosts", "delay one way", "loss", "seconds", "MB sent per host", "exit codes"]
    lines = [
        [
            f"`{row['words']}`",
            str(row["hosts"]),
            f"{row['delay_ms']:g} ms",
            f"{100 * row['loss']:g} %",
            f"{row['seconds']:.1f}",
            f"{row['bytes_per_host'] / 1e6:.3f}",
            ", ".join(map(str, row["exit_codes"])),
        ]
        for row in rows
    ]
    return markdown(header, lines) if lines else ABSENT
