"""The live report of a running run: a small read-only server.

It listens on the loopback interface, serves three paths, and refuses requests that are not addressed to its
own name, so that the page of another site cannot reach it through a name that points here.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from rich.console import Console

from ..data.store import ImageStore
from ..runs.folder import RunFolder
from . import page
from .content import Content, Pictures, gather, newest, open_pictures, progress

LOOPBACK = ("127.0.0.1", "localhost")
PATIENCE = 30.0
"""Seconds that a client may take for its request."""
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class _Watched:
    """A running run. Expensive content is cached until there is a newer state."""

    def __init__(self, run: RunFolder, images: ImageStore | None) -> None:
        self._run = run
        self._images = images
        self._pictures: Pictures | None = None
        self._lock = threading.Lock()
        self._content: Content | None = None

    def content(self) -> Content:
        with self._lock:
            if self._content is None or self._content["newest"] != newest(self._run):
                self._content = gather(self._run, self._opened(), live=True)
            return self._content | progress(self._run) | {"newest": self._content["newest"]}

    def _opened(self) -> Pictures:
        if self._pictures is None:
            if self._images is None:
                self._pictures = open_pictures(self._run)
            else:
                self._pictures = Pictures(self._images, self._run.description().source, own=True)
        return self._pictures

    def answers(self) -> dict[str, tuple[str, Callable[[], str]]]:
        """For every path its kind and how to make it."""
        return {
            "/": ("text/html; charset=utf-8", lambda: page.render("report", self.content(), live=True)),
            "/progress.json": ("application/json", lambda: _plain_json(progress(self._run))),
            "/content.json": ("application/json", lambda: _plain_json(self.content())),
        }


def _plain_json(content: Content) -> str:
    return json.dumps(content, allow_nan=False)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], watched: _Watched) -> None:
        super().__init__(address, _Handler)
        port = self.server_address[1]
        self.known_hosts = {f"{name}:{port}" for name in LOOPBACK} | (set(LOOPBACK) if port == 80 else set())
        self.answers = watched.answers()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect during an answer."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = PATIENCE
    server_version = "cts"
    sys_version = ""

    def do_GET(self) -> None:
        if self.headers.get("Host") not in self.server.known_hosts:
            self._send(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", "not the name of this server\n")
            return
        if self.path not in self.server.answers:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "no such page\n")
            return
        kind, answer = self.server.answers[self.path]
        try:
            self._send(HTTPStatus.OK, kind, answer())
        except (ValueError, OSError) as error:  # a file of the run that is just being replaced, or damaged
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"{error}\n")

    do_HEAD = do_GET  # noqa: N815 - the name is the base class's; ``_send`` leaves out the body

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        for name, value in (HEADERS | {"Content-Type": kind, "Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Print nothing: the terminal shows the progress bar."""


@contextmanager
def serve(folder: Path, port: int, console: Console, images: ImageStore | None = None) -> Iterator[str]:
    """Show the run in ``folder`` while the block lasts; yields the page's address. Port 0 takes any that is free.

    ``images`` are the run's own, if they are at hand; otherwise they are read from its source when a browser asks.
    """
    host = LOOPBACK[0]
    watched = _Watched(RunFolder(folder), images)
    try:
        server = _Server((host, port), watched)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"cannot serve on {host}:{port}: {reason}; give another port, or 0 for any") from None
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True)
    thread.start()
    url = f"http://{host}:{server.server_address[1]}/"
    console.print(f"live report: {url}", markup=False, soft_wrap=True)
    try:
        yield url
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
