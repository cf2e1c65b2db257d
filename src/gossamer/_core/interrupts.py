"""Ctrl-C, which a terminal sends to every process of a command at once, SIGTERM and SIGHUP."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# Seconds after which SIGTERM and SIGHUP interrupt a block that has not looked at the event, and
# after which they end the process, which may be in a long call of compiled code.
_GRACE_SECONDS = 5.0
_LAST_SECONDS = 10.0
_EXIT_CODE = 130

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))
"""The signals by which a user or a service manager stops a command."""


class _Stop(threading.Event):
    """An event that knows whether the block has seen it."""

    seen = False

    def is_set(self) -> bool:
        """True if the block is to stop."""
        found = super().is_set()
        if found:
            self.seen = True
        return found


@contextmanager
def stop_on_signal(
    grace: float = _GRACE_SECONDS, last: float = _LAST_SECONDS
) -> Iterator[threading.Event]:
    """Let Ctrl-C, SIGTERM and SIGHUP ask the block to stop.

    A second Ctrl-C raises KeyboardInterrupt. So do SIGTERM and SIGHUP after a few seconds in which
    the block does not look at the event; whoever sends them does not wait for long. A signal that
    is ignored, as SIGHUP is under `nohup`, stays so. Outside the main thread, which alone receives
    signals, nothing is changed.

    Args:
        grace: Seconds after which SIGTERM and SIGHUP raise KeyboardInterrupt in a block that has
            not looked at the event.
        last: Seconds after that until they end the process.

    Yields:
        An event that is set from the first signal on.
    """
    stopped = _Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    ended = threading.Event()
    was_set = super(_Stop, stopped).is_set

    def interrupt(number: int, frame: FrameType | None) -> None:
        if was_set():
            stopped.seen = True
            raise KeyboardInterrupt
        stopped.set()

    def terminate(number: int, frame: FrameType | None) -> None:
        if not was_set():
            stopped.set()
            given = (stopped, ended, grace, last)
            threading.Thread(target=_insist, args=given, daemon=True).start()

    handlers = {signal.SIGINT: interrupt, signal.SIGTERM: terminate}
    if hasattr(signal, "SIGHUP"):
        handlers[signal.SIGHUP] = terminate
    before = {}
    for number, handler in handlers.items():
        if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, handler)
    try:
        yield stopped
    finally:
        ended.set()
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def interrupt_once() -> Iterator[None]:
    """Let the first Ctrl-C, SIGTERM or SIGHUP raise KeyboardInterrupt, and ignore later ones.

    So whatever the block cleans up is cleaned up: `timeout` sends a signal to a process and again
    to its group. A signal that is ignored, as SIGHUP is under `nohup`, stays so. Outside the main
    thread, which alone receives signals, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {}
    for number in set(STOP_SIGNALS):
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.getsignal(number)

    def interrupt(number: int, frame: FrameType | None) -> None:
        for other in before:
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _insist(stopped: _Stop, ended: threading.Event, grace: float, last: float) -> None:
    """Interrupt a block that does not see that it is to stop; in the end, exit."""
    if ended.wait(grace) or stopped.seen:
        return
    # A second signal, which raises KeyboardInterrupt in the main thread.
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    if not ended.wait(last) and not stopped.seen:
        os._exit(_EXIT_CODE)


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Defer SIGINT until the end of the block.

    A process that is started in the block inherits the blocked signal and has to unblock it itself.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
