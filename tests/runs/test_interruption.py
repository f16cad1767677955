"""Signals stop the program where it computes, and wait where it writes."""

from __future__ import annotations

import signal
import threading

import pytest

from converge_to_surprise.runs.interruption import Interrupted, interruptible, stoppable

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_stops_what_may_be_stopped(number: signal.Signals) -> None:
    with interruptible() as interruption:
        with pytest.raises(Interrupted, match=number.name) as stopped, interruption.allowed():
            signal.raise_signal(number)
        assert stopped.value.signal_number == number
        assert "cts resume" in stopped.value.hint


@pytest.mark.parametrize("number", SIGNALS)
def test_elsewhere_a_signal_waits(number: signal.Signals) -> None:
    computed = []
    with interruptible() as interruption:
        signal.raise_signal(number)  # while a file is written
        with pytest.raises(Interrupted, match=number.name), interruption.allowed():
            computed.append("more")
    assert computed == []


def test_the_second_signal_does_not_disturb_the_saving_after_the_first() -> None:
    with interruptible() as interruption:
        with pytest.raises(Interrupted), interruption.allowed():
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)  # while the last step is saved


def test_handlers_are_as_before_afterwards() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with interruptible():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_another_thread_has_no_handlers() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    found: list[object] = []

    def work() -> None:
        with interruptible() as interruption, interruption.allowed():
            found.extend(signal.getsignal(number) for number in SIGNALS)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == before


def test_a_hint_at_what_is_kept() -> None:
    with pytest.raises(Interrupted, match="SIGINT") as stopped, stoppable("run it again"):
        raise KeyboardInterrupt
    assert stopped.value.hint == "run it again"
    with pytest.raises(ValueError, match="other"), stoppable("run it again"):
        raise ValueError("other")
