"""The program: ``cts``, or ``python -m converge_to_surprise``."""

import os
import signal


def main() -> int:
    """Run the command line."""
    # Threads that wait for each other must sleep, not spin: on a machine that does anything else besides, spinning
    # makes a training step ten times slower. The setting is read when torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        from . import cli

        return cli.main()
    except KeyboardInterrupt:
        return 130
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done: a late Ctrl-C has nothing left to stop


if __name__ == "__main__":
    raise SystemExit(main())
