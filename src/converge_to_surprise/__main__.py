"""``python -m converge_to_surprise`` is ``cts``."""

from .cli import main

raise SystemExit(main())
