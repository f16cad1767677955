"""Hosts on one machine: network namespaces whose only way out is the relay, and processes inside them.

All traffic stays inside the namespaces. They are deleted when the network ends, also after Ctrl-C, SIGTERM and errors;
what a killed process has left behind is deleted by the next one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from .relay import Link, Relay, open_tun

PREFIX = "cts-host"
PORT = 29_500
CONGESTION = "reno"
"""How TCP answers loss: the classical way, which a namespace may always choose. Linux's default, cubic, is made to be
at least as fast."""


class NetworkError(RuntimeError):
    """This machine or this user cannot make namespaces and TUN devices."""


def address(host: int) -> str:
    """Inside the namespaces only."""
    return f"10.77.0.{host + 1}"


class Network:
    """So many hosts, joined by a relay that is running."""

    def __init__(self, hosts: int, link: Link, mtu: int, congestion: str) -> None:
        self.hosts = hosts
        self.mtu = mtu
        self.congestion = congestion
        self._devices: list[int] = []
        self._processes: list[subprocess.Popen[str]] = []
        try:
            for host in range(hosts):
                self._add(host)
        except BaseException:
            self.close()
            raise
        self.relay = Relay(self._devices, link)
        self.relay.start()

    def _add(self, host: int) -> None:
        name, device = self.namespace(host), self.device(host)
        self._devices.append(open_tun(device))
        _ip("netns", "add", name)
        _ip("link", "set", device, "netns", name)
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "addr", "add", f"{address(host)}/24", "dev", device)
        _ip("-n", name, "link", "set", device, "mtu", str(self.mtu), "txqueuelen", "5000", "up")
        setting = f"echo {self.congestion} > /proc/sys/net/ipv4/tcp_congestion_control"
        _ip("netns", "exec", name, "sh", "-c", setting)

    @staticmethod
    def namespace(host: int) -> str:
        return f"{PREFIX}-{os.getpid()}-{host}"

    @staticmethod
    def device(host: int) -> str:
        return f"cts{os.getpid()}h{host}"

    def environment(self, host: int) -> dict[str, str]:
        """What torchrun would tell a process that is alone on its host."""
        return {
            "RANK": str(host),
            "WORLD_SIZE": str(self.hosts),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": address(0),
            "MASTER_PORT": str(PORT),
            "GLOO_SOCKET_IFNAME": self.device(host),
        }

    def start(
        self, host: int, words: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """A process on a host, ended after so many seconds at the latest, with pipes for what it reads and says."""
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace(host), "timeout", "--kill-after=5", str(seconds), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.environment(host), **(environment or {})},
            start_new_session=True,  # Ctrl-C is for us: we end them
        )
        self._processes.append(process)
        return process

    def close(self) -> None:
        """End all processes, the relay and the namespaces."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if hasattr(self, "relay"):
            self.relay.stop()
        for device in self._devices:
            os.close(device)
        for host in range(self.hosts):
            if (Path("/run/netns") / self.namespace(host)).exists():
                _ip("netns", "delete", self.namespace(host))


@contextlib.contextmanager
def network(hosts: int, link: Link, mtu: int = 9000, congestion: str = CONGESTION) -> Iterator[Network]:
    """A network that is torn down whatever happens."""
    if os.geteuid() != 0 or not Path("/dev/net/tun").exists():
        raise NetworkError("network namespaces need root, iproute2 and /dev/net/tun")
    _delete_orphans()
    before = signal.signal(signal.SIGTERM, _terminated)
    made = None
    try:
        made = Network(hosts, link, mtu, congestion)
        yield made
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: the clearing up must come to its end
        if made:
            made.close()
        signal.signal(signal.SIGTERM, before)


def _terminated(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _delete_orphans() -> None:
    """Namespaces of a process that was killed, and what still runs in them."""
    folder = Path("/run/netns")
    for path in list(folder.iterdir()) if folder.is_dir() else []:
        if path.name.startswith(PREFIX + "-") and not Path("/proc", path.name.split("-")[-2]).exists():
            for process in _ip("netns", "pids", path.name).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
            _ip("netns", "delete", path.name)


def _ip(*words: str) -> str:
    ended = subprocess.run(["ip", *words], capture_output=True, text=True)
    if ended.returncode:
        raise NetworkError(f"ip {' '.join(words)}: {ended.stderr.strip()}")
    return ended.stdout
