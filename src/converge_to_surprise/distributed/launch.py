"""Several processes for one run: those that torchrun started, or helpers started here.

The first process does what the command line says. The others wait for its orders (``run/helper.py``): they need no
arguments, and what they are told is JSON and safetensors, never code.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import Store, TCPStore, rendezvous  # type: ignore[attr-defined]

from .group import SINGLE, ProcessGroup

PATIENCE = timedelta(minutes=30)
"""How long a process waits for another one that is still there."""
HELPER = "CTS_HELPER"
"""Set for processes that were started here and not by torchrun."""
MEETING = "converge-to-surprise"
"""Under which name torchrun's store says where the processes meet."""
_kept: list[Store] = []
SIGNS = ("gloo", "peer", "Broken pipe", "Connection", "NCCL", "recv", "timed out", "Timed out")
"""What torch says when another process is gone; it has several kinds of errors for that."""


class WorkerLost(Exception):  # noqa: N818 - the run is saved
    """Another process is gone; what was done is saved."""


def launched() -> bool:
    """Whether torchrun started this process, or another process of ours did."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def rank() -> int:
    return int(os.environ["RANK"]) if launched() else 0


@contextmanager
def joined() -> Iterator[ProcessGroup]:
    """The processes that this one was started with; none if it was started alone."""
    if not launched():
        yield SINGLE
        return
    world = ProcessGroup(rank(), int(os.environ["WORLD_SIZE"]), int(os.environ.get("LOCAL_WORLD_SIZE", 1)))
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    with _group(world, lambda: _helpers_store(world) if HELPER in os.environ else _torchruns_store(world)):
        yield world


def _helpers_store(world: ProcessGroup) -> Store:
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(address, port, world.size, is_master=False, timeout=PATIENCE)


def _torchruns_store(world: ProcessGroup) -> Store:
    """A store of this start's own, hosted by the first process.

    torchrun's store outlives a restart, and with it the addresses of processes that are gone: gloo would call them. So
    it only says where the new store is; who reads where the last one was finds nobody there and looks again.
    """
    known, _, _ = next(rendezvous("env://", timeout=PATIENCE))
    if world.rank == 0:
        own = TCPStore("0.0.0.0", 0, world.size, is_master=True, wait_for_workers=False, timeout=PATIENCE)
        known.set(MEETING, f"{_own_address()} {own.port}")
        _kept.append(known)  # others may still have to read it
        return own
    until = time.monotonic() + PATIENCE.total_seconds()
    while True:
        address, port = known.get(MEETING).decode().split()
        try:
            return TCPStore(address, int(port), world.size, is_master=False, timeout=timedelta(seconds=5))
        except RuntimeError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def _own_address() -> str:
    """The address by which the others reach this process: the one from which it reaches them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))  # sends nothing
        return str(probe.getsockname()[0])


@contextmanager
def helped(world: ProcessGroup, processes: int) -> Iterator[ProcessGroup]:
    """So many processes on this machine, unless there are several already. They are started and ended here."""
    if processes <= 1 or not world.alone:
        yield world
        return
    store = TCPStore("127.0.0.1", 0, processes, is_master=True, wait_for_workers=False, timeout=PATIENCE)
    surroundings = {
        HELPER: "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
    }
    with _surroundings(_loopback()):
        helpers = [_start(surroundings | {"RANK": str(k), "LOCAL_RANK": str(k)}) for k in range(1, processes)]
        try:
            with _group(ProcessGroup(0, processes, processes), lambda: store) as team:
                yield team
            for helper in helpers:
                helper.wait(PATIENCE.total_seconds())
        except WorkerLost as lost:
            raise WorkerLost(_fate(helpers) or str(lost)) from lost
        finally:
            for helper in helpers:
                helper.kill()
                helper.wait()


def order(world: ProcessGroup, what: str, details: Mapping[str, Any] | None = None) -> None:
    """Tell the other processes what to do next."""
    world.tell(json.dumps({"do": what, **(details or {})}).encode())


@contextmanager
def _group(world: ProcessGroup, meet: Callable[[], Store]) -> Iterator[ProcessGroup]:
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // world.local))
    try:
        store = meet()
        store.set_timeout(PATIENCE)
        dist.init_process_group(backend, store=store, rank=world.rank, world_size=world.size, timeout=PATIENCE)
        try:
            yield world
            if world.rank == 0:
                order(world, "end")
        finally:
            with contextlib.suppress(RuntimeError):
                dist.destroy_process_group()
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or any(sign in str(error) for sign in SIGNS):
            raise WorkerLost(f"another process of this run is gone ({str(error).splitlines()[0]})") from error
        raise
    finally:
        torch.set_num_threads(threads)


def _start(surroundings: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A helper. It is not in the terminal's foreground: Ctrl-C reaches the first process, which ends it."""
    return subprocess.Popen(
        [sys.executable, "-m", "converge_to_surprise"],
        env={**os.environ, **surroundings},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def _fate(helpers: list[subprocess.Popen[bytes]]) -> str:
    """What became of helpers that ended by themselves; empty if none did."""
    until = time.monotonic() + 2
    while time.monotonic() < until and all(helper.poll() is None for helper in helpers):
        time.sleep(0.02)
    ended = [f"process {k} ended with code {helper.returncode}" for k, helper in enumerate(helpers, 1) if helper.poll()]
    return ", ".join(ended)


def _loopback() -> dict[str, str]:
    """Processes of one machine talk over its loopback only, where the system says which that is."""
    names = [name for _, name in socket.if_nameindex()]
    found = [name for name in ("lo", "lo0") if name in names]
    return {"GLOO_SOCKET_IFNAME": found[0]} if found else {}


@contextmanager
def _surroundings(changes: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
