"""Start and connect the processes of a run: those of torchrun, or workers on this machine.

The first process executes the command line. The others wait for its commands (``distributed/worker.py``): they need no
arguments, and what they receive is JSON and safetensors, never code.
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

from .errors import WorkerLost
from .group import SINGLE, ProcessGroup, active

TIMEOUT = timedelta(minutes=30)
"""How long a process waits for another one that is alive."""
WORKER = "CTS_WORKER"
"""Environment variable of workers started here, as opposed to processes of torchrun."""
STORE_KEY = "converge-to-surprise"
"""Key in torchrun's store under which the address of this program's own store is published."""
LOSS_MESSAGES = ("gloo", "peer", "Broken pipe", "Connection", "NCCL", "recv", "timed out", "Timed out")
"""Parts of torch's error messages when another process is gone; there is no single exception type for that."""

_stores: list[Store] = []
_joined: list[ProcessGroup] = []


def launched() -> bool:
    """Whether torchrun, or another process of this program, started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def rank() -> int:
    return int(os.environ["RANK"]) if launched() else 0


@contextmanager
def joined() -> Iterator[ProcessGroup]:
    """Connect to the processes that this one was started with. Within the block ``joined_group`` returns the group."""
    if not launched():
        yield SINGLE
        return
    group = ProcessGroup(rank(), int(os.environ["WORLD_SIZE"]), int(os.environ.get("LOCAL_WORLD_SIZE", 1)))
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    with _connected(group, lambda: _worker_store(group) if WORKER in os.environ else _torchrun_store(group)):
        _joined.append(group)
        try:
            yield group
        finally:
            _joined.clear()


def joined_group() -> ProcessGroup:
    """The processes that this one was started with; this process alone if there are no others."""
    return _joined[-1] if _joined else SINGLE


def _worker_store(group: ProcessGroup) -> Store:
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(address, port, group.size, is_master=False, timeout=TIMEOUT)


def _torchrun_store(group: ProcessGroup) -> Store:
    """A new store for this start, hosted by the first process.

    torchrun's store survives a restart, and with it the addresses of processes that are gone, to which gloo would try
    to connect. So it only holds the address of the new store. A process that reads the previous address cannot connect
    and reads again.
    """
    known, _, _ = next(rendezvous("env://", timeout=TIMEOUT))
    if group.rank == 0:
        own = TCPStore("0.0.0.0", 0, group.size, is_master=True, wait_for_workers=False, timeout=TIMEOUT)
        known.set(STORE_KEY, f"{_own_address()} {own.port}")
        _stores.append(known)  # other processes may still have to read it
        return own
    until = time.monotonic() + TIMEOUT.total_seconds()
    while True:
        address, port = known.get(STORE_KEY).decode().split()
        try:
            return TCPStore(address, int(port), group.size, is_master=False, timeout=timedelta(seconds=5))
        except RuntimeError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def _own_address() -> str:
    """The address by which the other processes reach this one: the one from which it reaches them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))  # sends nothing
        return str(probe.getsockname()[0])


@contextmanager
def workers(processes: int) -> Iterator[ProcessGroup]:
    """Make a group of ``processes`` processes on this machine active, or the joined group if there is one."""
    group = joined_group()
    if processes <= 1 or not group.is_single:
        with active(group):
            yield group
        return
    store = TCPStore("127.0.0.1", 0, processes, is_master=True, wait_for_workers=False, timeout=TIMEOUT)
    environment = {
        WORKER: "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
    }
    with _environment(_loopback()):
        started = [_start(environment | {"RANK": str(k), "LOCAL_RANK": str(k)}) for k in range(1, processes)]
        try:
            with _connected(ProcessGroup(0, processes, processes), lambda: store) as team, active(team):
                yield team
            for worker in started:
                worker.wait(TIMEOUT.total_seconds())
        except WorkerLost as lost:
            raise WorkerLost(_exit_codes(started) or str(lost)) from lost
        finally:
            for worker in started:
                worker.kill()
                worker.wait()


def send_command(group: ProcessGroup, name: str, details: Mapping[str, Any] | None = None) -> None:
    """Send a command to the other processes."""
    group.broadcast(json.dumps({"command": name, **(details or {})}).encode())


@contextmanager
def _connected(group: ProcessGroup, store: Callable[[], Store]) -> Iterator[ProcessGroup]:
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // group.local_size))
    try:
        shared = store()
        shared.set_timeout(TIMEOUT)
        dist.init_process_group(backend, store=shared, rank=group.rank, world_size=group.size, timeout=TIMEOUT)
        try:
            yield group
            if group.rank == 0:
                send_command(group, "end")
        finally:
            with contextlib.suppress(RuntimeError):
                dist.destroy_process_group()
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or any(message in str(error) for message in LOSS_MESSAGES):
            raise WorkerLost(f"another process of this run is gone ({str(error).splitlines()[0]})") from error
        raise
    finally:
        torch.set_num_threads(threads)


def _start(environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a worker in a session of its own: Ctrl-C reaches the first process only, which ends the workers."""
    return subprocess.Popen(
        [sys.executable, "-m", "converge_to_surprise"],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def _exit_codes(started: list[subprocess.Popen[bytes]]) -> str:
    """The exit codes of workers that ended by themselves; empty if none did."""
    until = time.monotonic() + 2
    while time.monotonic() < until and all(worker.poll() is None for worker in started):
        time.sleep(0.02)
    ended = [f"process {k} ended with code {worker.returncode}" for k, worker in enumerate(started, 1) if worker.poll()]
    return ", ".join(ended)


def _loopback() -> dict[str, str]:
    """Restrict gloo to the loopback interface, if its name is known."""
    names = [name for _, name in socket.if_nameindex()]
    found = [name for name in ("lo", "lo0") if name in names]
    return {"GLOO_SOCKET_IFNAME": found[0]} if found else {}


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
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
