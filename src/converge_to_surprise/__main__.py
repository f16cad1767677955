"""The program: ``cts``, or ``python -m converge_to_surprise``."""

from . import let_waiting_threads_sleep


def main() -> int:
    """Run the command line."""
    let_waiting_threads_sleep()
    from . import cli

    return cli.main()


if __name__ == "__main__":
    raise SystemExit(main())
