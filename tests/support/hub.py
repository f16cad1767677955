"""A small vision transformer as files of a hub repository, the hub's cache, and a server that answers like the hub."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SMALL = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
PREPROCESSOR = {
    "size": {"height": 32, "width": 32}, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.25, 0.5], "resample": 3,
}  # fmt: skip


def build(kind: str, **settings: Any) -> nn.Module:
    """A model of transformers with random weights from a fixed seed."""
    import transformers

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        family: Any = transformers.AutoModel
        model = family.from_config(transformers.AutoConfig.for_model(kind, **settings))
    found: nn.Module = model.eval()
    return found


def save(model: Any, folder: Path, prefix: str = "", without: tuple[str, ...] = ()) -> Path:
    """Write config.json, model.safetensors and preprocessor_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(model.config.to_dict()))
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR))
    tensors = {prefix + name: value.contiguous().clone() for name, value in model.state_dict().items()}
    kept = {name: value for name, value in tensors.items() if not any(part in name for part in without)}
    save_file(kept, folder / "model.safetensors")
    return folder


def cache(folder: Path, home: Path, repository: str = "org/tiny") -> Path:
    """Put a folder's files into a hub cache, as huggingface_hub lays it out: links from the snapshot to blobs."""
    root = home / "hub" / f"models--{repository.replace('/', '--')}"
    for name in ("blobs", "refs", f"snapshots/{COMMIT}"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "refs" / "main").write_text(COMMIT)
    for file in (path for path in folder.rglob("*") if path.is_file()):
        blob = root / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
        blob.write_bytes(file.read_bytes())
        link = root / "snapshots" / COMMIT / file.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    return root / "snapshots" / COMMIT


@contextlib.contextmanager
def server(folder: Path, repository: str = "org/tiny") -> Iterator[tuple[str, list[str]]]:
    """Serve a folder like the hub: its address, and the paths that were asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, code: int, content: bytes, **headers: str) -> None:
            self.send_response(code)
            for name, value in ({"Content-Length": str(len(content))} | headers).items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def do_GET(self) -> None:
            asked.append(self.path)
            path = self.path.partition("?")[0]
            names = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
            if path.removesuffix("/revision/main").removesuffix(f"/revision/{COMMIT}") == f"/api/models/{repository}":
                siblings = [{"rfilename": name} for name in names]
                about = {"_id": "1", "id": repository, "sha": COMMIT, "siblings": siblings, "tags": [], "downloads": 0}
                self._answer(200, json.dumps(about).encode(), Content_Type="application/json")
                return
            start = f"/{repository}/resolve/"
            name = path.removeprefix(f"{start}main/").removeprefix(f"{start}{COMMIT}/")
            if name in names:
                content = (folder / name).read_bytes()
                etag = f'"{hashlib.sha256(content).hexdigest()}"'
                self._answer(200, content, ETag=etag, X_Repo_Commit=COMMIT, Accept_Ranges="none")
                return
            self._answer(404, b"{}", X_Error_Code="RepoNotFound" if path.startswith("/api") else "EntryNotFound")

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listening.server_address[1]}", asked
        finally:
            listening.shutdown()
