"""One host: joins the others and sends what a step of a search sends, the computing replaced by sleep.

Run inside a namespace by ``benchmarks/hosts.py``. It reads one case after the other from its standard input and answers
each with one line. Sleeping takes no CPU, so many hosts fit on one machine and the time of a step is that of a
host that computes so long and then waits for its messages.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from converge_to_surprise.distributed.collectives import all_gather, all_sum

LAYERS = (16, 16, 16, 32, 64, 64, 64)
"""Channels of the folded network's layers with batch normalization."""
COUNTS = 2 * 8 * 64
"""p and t of 8 heads with 64 outputs each."""
PARAMETERS = 135_776
"""Of the folded network with 8 heads; ``tests/test_scale.py`` compares."""
MEMBERS = 32
PROBE_PORT = 29_600


@dataclass(frozen=True)
class Case:
    """What is run."""

    search: str
    """evolution or relaxed; or round-trip or stream, which try the network itself."""
    way: str = "ring"
    """direct: as the program does, every host writing to every other at once; ring: the backend's own collectives."""
    compute: float = 0.0
    """Seconds per step for which this host computes."""
    steps: int = 1


def messages(search: str, hosts: int) -> list[int]:
    """Sizes of the sums of a step of the relaxed search (float32), or what one host adds for evolution (float64)."""
    if search == "evolution":
        return [-(-MEMBERS // hosts)]
    forward = [2 * channels + 1 for channels in LAYERS]
    backward = [2 * channels for channels in reversed(LAYERS)]
    return [*forward, COUNTS, COUNTS, *backward, PARAMETERS]


def rounds(search: str, way: str, hosts: int) -> int:
    """Round trips that a step waits for at least, one after the other.

    A ring passes a gathering on from neighbor to neighbor in n - 1 rounds and a sum in 2 (n - 1). Directly a message
    takes one round; only the gradient, which is large, is all_sum in parts and then gathered, which takes two. A round
    is a round trip, not one way, because gloo sends a message only when the receiver has said that it waits for it.
    """
    if search == "evolution":
        return hosts - 1 if way == "ring" else 1
    sums = len(messages(search, hosts))
    return sums * 2 * (hosts - 1) if way == "ring" else sums + 1


def step(case: Case, buffers: list[Tensor]) -> None:
    """The messages of one step, each awaited before the next, as the next one depends on it."""
    if case.search == "evolution":
        if case.way == "direct":
            all_gather(buffers[0])
        else:
            dist.all_gather([torch.empty_like(buffers[0]) for _ in range(dist.get_world_size())], buffers[0])
        return
    for buffer in buffers:
        if case.way == "direct":
            all_sum(buffer)
        else:
            dist.all_reduce(buffer)


def run_steps(case: Case) -> list[float]:
    """Seconds of each step. One more step comes before them, without computing: it brings the hosts together."""
    kind = torch.float64 if case.search == "evolution" else torch.float32
    buffers = [torch.zeros(size, dtype=kind) for size in messages(case.search, dist.get_world_size())]
    step(case, buffers)
    seconds = []
    for _ in range(case.steps):
        began = time.perf_counter()
        time.sleep(case.compute)
        step(case, buffers)
        seconds.append(time.perf_counter() - began)
    return seconds


def probe(body: Callable[[socket.socket], list[float]], answer: Callable[[socket.socket], None]) -> list[float]:
    """A plain TCP connection from the second host to the first; the others look on."""
    found: list[float] = []
    listener = socket.create_server(("", PROBE_PORT)) if dist.get_rank() == 0 else None
    dist.barrier()
    if listener:
        with listener, listener.accept()[0] as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            answer(peer)
    elif dist.get_rank() == 1:
        with socket.create_connection((os.environ["MASTER_ADDR"], PROBE_PORT)) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            found = body(peer)
    dist.barrier()
    return found


def round_trips(count: int) -> list[float]:
    """Seconds from a byte to its echo."""

    def body(peer: socket.socket) -> list[float]:
        seconds = []
        for _ in range(count):
            began = time.perf_counter()
            peer.sendall(b".")
            peer.recv(1)
            seconds.append(time.perf_counter() - began)
        return seconds

    def answer(peer: socket.socket) -> None:
        while byte := peer.recv(1):
            peer.sendall(byte)

    return probe(body, answer)


def stream(megabytes: int) -> list[float]:
    """Seconds that so many megabytes need in one direction, until the receiver has said that it has them."""

    def body(peer: socket.socket) -> list[float]:
        block = bytes(1_000_000)
        began = time.perf_counter()
        for _ in range(megabytes):
            peer.sendall(block)
        peer.recv(1)
        return [time.perf_counter() - began]

    def answer(peer: socket.socket) -> None:
        left = megabytes * 1_000_000
        while left:
            left -= len(peer.recv(1 << 20))
        peer.sendall(b".")

    return probe(body, answer)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        case = Case(**json.loads(line))
        if case.search == "round-trip":
            seconds = round_trips(case.steps)
        elif case.search == "stream":
            seconds = stream(case.steps)
        else:
            seconds = run_steps(case)
        print(json.dumps(seconds), flush=True)
    # No farewell: the others may be gone already.
    os._exit(0)


if __name__ == "__main__":
    main()
