"""The program: ``cts``, or ``python -m converge_to_surprise``."""

import os
import signal

from . import let_waiting_threads_sleep


def main() -> int:
    """Run the command line."""
    let_waiting_threads_sleep()
    try:
        if "WORLD_SIZE" in os.environ and os.environ.get("RANK", "0") != "0":  # of several processes not the first
            from .distributed import worker as helper

            return helper.serve()
        from . import cli
        from .data.decode import own_pillow_warnings

        own_pillow_warnings()
        return cli.main()
    except KeyboardInterrupt:
        return 130
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done: a late Ctrl-C has nothing left to stop


if __name__ == "__main__":
    raise SystemExit(main())
