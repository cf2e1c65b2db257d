"""Ctrl-C, which a terminal sends to every process of a command at once, and SIGTERM."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """Let Ctrl-C and SIGTERM ask the block to stop; a second one raises KeyboardInterrupt.

    Outside the main thread, which alone receives signals, nothing is changed.

    Yields:
        An event that is set from the first signal on.
    """
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
