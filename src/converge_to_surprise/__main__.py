"""The program: ``cts``, or ``python -m converge_to_surprise``."""

import os
import signal

from . import use_passive_threads


def main() -> int:
    """Run the command line, or serve the first process of a group."""
    use_passive_threads()
    try:
        if "WORLD_SIZE" in os.environ and os.environ.get("RANK", "0") != "0":
            from .distributed import worker

            return worker.serve()
        from . import cli

        return cli.main()
    except KeyboardInterrupt:
        return 130
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # everything is done: a late Ctrl-C must not show a traceback


if __name__ == "__main__":
    raise SystemExit(main())
