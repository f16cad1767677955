"""How well would several hosts work together over a slow network? Measured with real TCP between namespaces.

    python benchmarks/hosts.py [--hosts 2 4 8] [--delays 0 1 10 50] [--losses 0 0.001 0.01] [--save FILE]
    python benchmarks/hosts.py --fit "fit digits --out RUN" --hosts 2 --delays 10 --losses 0
    python benchmarks/hosts.py --table

Makes network namespaces on this machine, joined by a relay in user space that delays every packet (``--delays``:
milliseconds one way; a round trip takes twice as long), loses some (``--losses``: probability per packet) and lets each
host send ``--rate`` Mbit/s. In each a process joins a gloo group and sends what a step of either search sends, with the
computing replaced by a sleep of the measured time of one machine divided by the number of hosts: a sleep takes no
CPU, so efficiency = sleep / (time of a step) is a wall-clock figure. Two ways of sending are compared:

- ring:   gloo's own all_gather and all_reduce, which pass on from neighbor to neighbor;
- direct: every host writes to every other at once (all_to_all) and adds up what it gets.

The relay is tried first: round trips of one byte and a stream through one TCP connection. ``--fit`` starts a ``cts``
command on every host instead, as torchrun would ({rank} in it is the host's number, {new} a path where nothing is), and
times it. ``--table`` prints the tables of the saved results. Needs root, iproute2 and /dev/net/tun. The last line is
one JSON object.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from scaling import rates
from simnet import tables
from simnet.namespaces import CONGESTION, Network, NetworkError, network
from simnet.relay import Link
from simnet.traffic import Case, rounds

TRAFFIC = Path(__file__).parent / "simnet" / "traffic.py"
SAVED = rates.RESULTS / "hosts.json"
LOADS = (
    ("ring", "evolution", "gpu", 3000),
    ("ring", "relaxed", "cpu", 2000),
    ("direct", "evolution", "cpu", 3000),
    ("direct", "evolution", "gpu", 3000),
    ("direct", "relaxed", "cpu", 250),
    ("direct", "relaxed", "cpu", 2000),
    ("direct", "relaxed", "gpu", 16_000),
)
"""Way of sending, search, machine and images per step. The ring, which is slow, is tried with one load per search: its
messages are the same whatever the computing takes."""
PATIENCE = 5.0
"""Seconds for which a case should run ..."""
STEPS = (2, 20)
"""... but at least and at most so many steps."""
LONGEST = 3 * 3600.0


class Group:
    """The processes of ``simnet/traffic.py`` on all hosts."""

    def __init__(self, hosts: Network) -> None:
        self.hosts = hosts
        words = [sys.executable, str(TRAFFIC)]
        self.members = [hosts.start(host, words, LONGEST) for host in range(hosts.hosts)]
        self.answers()

    def answers(self) -> list[Any]:
        found = []
        for member in self.members:
            assert member.stdout is not None
            if not (line := member.stdout.readline()):
                raise SystemExit("a host has ended before its time: see its message above")
            found.append(json.loads(line))
        return found

    def run(self, case: Case) -> list[Any]:
        """What every host answers."""
        for member in self.members:
            assert member.stdin is not None
            member.stdin.write(json.dumps(asdict(case)) + "\n")
            member.stdin.flush()
        return self.answers()


def steps_of(compute: float, waits: int, delay: float) -> int:
    """As many steps as fit into the patience, by the shortest time that a step can take."""
    shortest = compute + waits * (2 * delay + 0.001)
    return max(STEPS[0], min(STEPS[1], int(PATIENCE / shortest)))


def measured(group: Group, load: tuple[str, str, str, int], link: Link) -> dict[str, Any]:
    """One search under one kind of network."""
    way, search, machine, batch = load
    hosts = group.hosts.hosts
    compute = rates.step_seconds(search, machine, batch) / hosts
    waits = rounds(search, way, hosts)
    case = Case(search, way, compute, steps_of(compute, waits, link.delay))
    before = group.hosts.relay.counters
    seconds = group.run(case)
    time.sleep(0.2 + 2 * link.delay)  # the last acknowledgements
    sent = group.hosts.relay.counters - before
    # A step is over when the slowest host is through with it.
    lasted = [max(times) for times in zip(*seconds, strict=True)]
    return {
        "search": search, "machine": machine, "batch": batch, "way": way, "hosts": hosts,
        "delay_ms": link.delay * 1000, "loss": link.loss, "rounds": waits, "steps": case.steps,
        "compute": compute, "mean": statistics.fmean(lasted), "median": statistics.median(lasted),
        "shortest": min(lasted), "efficiency": compute / statistics.median(lasted),
        "bytes_per_host": sent.bytes / hosts / (case.steps + 1),
        "packets_per_host": sent.packets / hosts / (case.steps + 1),
        "lost": sent.lost,
    }  # fmt: skip


def try_relay(group: Group, link: Link, delays: list[float]) -> list[dict[str, float]]:
    """The network itself: round trips and a stream through one connection, without loss."""
    found = []
    for delay in delays:
        link.delay = delay / 1000
        trips = [trip for times in group.run(Case("round-trip", steps=40)) for trip in times]
        megabytes = 100 if delay <= 1 else 30
        (seconds,) = (time for times in group.run(Case("stream", steps=megabytes)) for time in times)
        found.append(
            {
                "delay_ms": delay,
                "round_trip_ms": 1000 * statistics.median(trips),
                "stream_mbit_per_s": 8 * megabytes / seconds,
            }
        )
        print(f"relay: {found[-1]}", flush=True)
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All searches under all networks."""
    relay: list[dict[str, float]] = []
    rows: list[dict[str, Any]] = []
    for hosts in options.hosts:
        link = Link(rate=options.rate * 1e6)
        with network(hosts, link, options.mtu, options.congestion) as between:
            group = Group(between)
            relay = relay or try_relay(group, link, options.delays)
            for delay in options.delays:
                # Without delay only the simulation's own cost is of interest.
                for loss in options.losses if delay else [0.0]:
                    link.delay, link.loss = delay / 1000, loss
                    for load in LOADS:
                        rows.append(measured(group, load, link))
                        print(tables.line(rows[-1]), flush=True)
                    link.loss = 0.0
    return {"relay": relay, "rows": rows}


def fit(options: argparse.Namespace) -> dict[str, Any]:
    """Time a ``cts`` command that runs on every host at once."""
    rows = []
    for hosts in options.hosts:
        for delay in options.delays:
            for loss in options.losses:
                link = Link(delay / 1000, loss, options.rate * 1e6)
                with (
                    tempfile.TemporaryDirectory() as folder,
                    network(hosts, link, options.mtu, options.congestion) as between,
                ):
                    where = {"hosts": hosts, "delay_ms": delay, "loss": loss}
                    found = timed(between, options, f"{folder}/new")
                    rows.append({"words": options.fit, "threads": options.threads, **where, **found})
                    print(rows[-1], flush=True)
    return {"fits": rows}


def timed(between: Network, options: argparse.Namespace, new: str) -> dict[str, Any]:
    began = time.perf_counter()
    processes = []
    for host in range(between.hosts):
        words = [word.replace("{rank}", str(host)).replace("{new}", new) for word in shlex.split(options.fit)]
        environment = {"OMP_NUM_THREADS": str(options.threads)}
        command = [sys.executable, "-m", "converge_to_surprise", *words]
        processes.append(between.start(host, command, options.longest, environment))
    with ThreadPoolExecutor(len(processes)) as listeners:  # whom nobody listens to stops when its pipe is full
        said = list(listeners.map(lambda process: process.communicate()[0], processes))
    codes = [process.returncode for process in processes]
    for host, text in enumerate(said):
        if host == 0 or codes[host]:
            print(text, end="", flush=True)
    sent = between.relay.counters
    return {
        "seconds": time.perf_counter() - began,
        "exit_codes": codes,
        "bytes_per_host": sent.bytes / between.hosts,
        "packets_per_host": sent.packets / between.hosts,
        "lost": sent.lost,
    }


def added(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Results with others added: a case that was measured again replaces the old one."""

    def case(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row.get(key) for key in (*tables.LOAD, "words", "threads", "hosts", "delay_ms", "loss"))

    found = {**old, **new, "command": f"{old['command']}; {new['command']}"}
    for name in ("relay", "rows", "fits"):
        found[name] = list({case(row): row for row in [*old.get(name, []), *new.get(name, [])]}.values())
    found["relay"].sort(key=lambda row: float(row["delay_ms"]))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--delays", type=float, nargs="+", default=[0.0, 1.0, 10.0, 50.0], help="milliseconds one way")
    parser.add_argument("--losses", type=float, nargs="+", default=[0.0, 0.001, 0.01], help="probability per packet")
    parser.add_argument("--rate", type=float, default=1000.0, help="Mbit/s that a host can send")
    parser.add_argument("--mtu", type=int, default=9000, help="bytes of the largest packet")
    parser.add_argument(
        "--congestion", default=CONGESTION, help="how TCP answers loss: reno, or what the kernel allows"
    )
    parser.add_argument("--fit", default="", metavar="WORDS", help="time this `cts` command on every host instead")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each host with --fit")
    parser.add_argument("--longest", type=float, default=3600.0, help="seconds after which --fit is ended")
    parser.add_argument(
        "--save", type=Path, help=f"where results go: {SAVED.name} in benchmarks/results for the tables"
    )
    parser.add_argument("--add", action="store_true", help="keep what is saved there and was not measured anew")
    parser.add_argument("--table", action="store_true", help="print the saved results as Markdown and end")
    options = parser.parse_args()
    if options.table:
        print("\n\n".join(tables.of_hosts(rates.result("hosts")).values()))
        return 0
    if not all(2 <= hosts <= 200 for hosts in options.hosts):
        parser.error("--hosts: from 2 to 200")
    about = {
        "command": "python benchmarks/hosts.py " + shlex.join(sys.argv[1:]),
        "torch": torch.__version__,
        "mtu": options.mtu,
        "rate_mbit_per_s": options.rate,
        "congestion_control": options.congestion,
    }
    try:
        found = {**about, **(fit(options) if options.fit else measure(options))}
    except NetworkError as error:
        print(error, file=sys.stderr)
        return 2
    except subprocess.SubprocessError as error:
        print(f"a host could not be started: {error}", file=sys.stderr)
        return 2
    if options.save:
        if options.add and options.save.is_file():
            found = added(json.loads(options.save.read_text(encoding="utf-8")), found)
        options.save.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found))
    return int(any(any(row["exit_codes"]) for row in found.get("fits", [])))


if __name__ == "__main__":
    raise SystemExit(main())
