"""The network between the hosts: a switch in user space that delays packets and loses some.

Each host has a TUN device; what its kernel sends there arrives here as whole IP packets. A packet leaves its host at
the rate of the host's link, is lost with a given probability, and is handed to the host it is for after a given delay.
So real TCP stacks feel real latency, loss and bandwidth, on a kernel without traffic shaping.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import os
import random
import select
import struct
import threading
import time
from dataclasses import dataclass

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
LARGEST = 65536
BURST = 32
"""Packets taken from one host before the others have their turn and due packets go out."""


@dataclass
class Link:
    """What lies between any two hosts; may be changed while packets travel."""

    delay: float = 0.0
    """Seconds one way."""
    loss: float = 0.0
    """Probability with which a packet is lost, of data and of acknowledgements alike."""
    rate: float = 1e9
    """Bits per second that a host can send."""


@dataclass(frozen=True)
class Counters:
    """What all hosts together have sent: IP packets and their bytes, headers included, and how many were lost."""

    packets: int = 0
    bytes: int = 0
    lost: int = 0

    def __sub__(self, before: Counters) -> Counters:
        return Counters(self.packets - before.packets, self.bytes - before.bytes, self.lost - before.lost)


def open_tun(name: str) -> int:
    """A new TUN device of this name, in the namespace of this process, and the file through which its packets pass."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    except OSError:
        os.close(device)
        raise
    return device


class Relay(threading.Thread):
    """Carries packets between TUN devices until stopped. A packet for 10.x.y.k goes to the k-th device, from 1."""

    def __init__(self, devices: list[int], link: Link, seed: int = 0) -> None:
        super().__init__(name="relay", daemon=True)
        self.devices = devices
        self.link = link
        self.random = random.Random(seed)
        self.counters = Counters()
        self._sent = [0, 0, 0]
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._free = dict.fromkeys(devices, 0.0)
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()
        self.join(5)

    def run(self) -> None:
        while not self._stopped.is_set():
            self._deliver()
            # select, because its timeout counts microseconds where epoll's counts milliseconds.
            patience = min(0.1, max(0.0, self._waiting[0][0] - time.monotonic())) if self._waiting else 0.1
            for device in select.select(self.devices, [], [], patience)[0]:
                with contextlib.suppress(BlockingIOError):
                    for _ in range(BURST):
                        self._accept(device, os.read(device, LARGEST))
            self.counters = Counters(*self._sent)

    def _accept(self, device: int, packet: bytes) -> None:
        if packet[0] >> 4 != 4 or not 1 <= packet[19] <= len(self.devices):
            return  # the kernel's own IPv6 announcements, broadcasts
        self._sent[0] += 1
        self._sent[1] += len(packet)
        begins = max(time.monotonic(), self._free[device])
        self._free[device] = begins + 8 * len(packet) / self.link.rate
        if self.random.random() < self.link.loss:
            self._sent[2] += 1
            return
        due = self._free[device] + self.link.delay
        heapq.heappush(self._waiting, (due, self._sent[0], self.devices[packet[19] - 1], packet))

    def _deliver(self) -> None:
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, _, device, packet = heapq.heappop(self._waiting)
            # A device that is full or gone loses the packet, as a network would.
            with contextlib.suppress(OSError):
                os.write(device, packet)
