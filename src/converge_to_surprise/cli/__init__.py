"""``cts``: the command line. One module per command; nothing heavy is imported before a command needs it."""

from .parser import main

__all__ = ["main"]
