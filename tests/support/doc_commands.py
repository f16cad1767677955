"""The fenced blocks of a page of the documentation, and the commands in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def fences(text: str) -> Iterator[tuple[str, str]]:
    """Language and content of every fenced block."""
    for found in FENCE.finditer(text):
        yield found[1], found[2]


def command_lines(text: str) -> list[str]:
    """Every line of a shell block that starts ``cts``, directly or by torchrun, joined over backslashes."""
    found = []
    for language, block in fences(text):
        if language in ("", "sh", "bash", "shell", "console"):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if words[:1] == ["cts"]:
                    found.append(shlex.join(words[1:]))
                elif "converge_to_surprise" in words:
                    found.append(shlex.join(words[words.index("converge_to_surprise") + 1 :]))
    return found
