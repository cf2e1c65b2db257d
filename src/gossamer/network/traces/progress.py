"""Progress of reading large logs.

The readers report how much of a log they have read to a callback that `reporting` sets for the
current context. Small logs are read at once and report nothing.

    from gossamer.network.traces import progress

    def show(path, done, total):
        print(f"{path}: {done / total:.0%}")

    with progress.reporting(show):
        network = ContactTrace("contacts.csv")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

# Receives the path of the log, the bytes that are read, and the bytes of the whole log.
Callback = Callable[[Path, int, int], None]

SMALL = 8 * 2**20  # bytes of a log that is read without a report: about half a second

_callback: ContextVar[Callback | None] = ContextVar("progress", default=None)


@contextmanager
def reporting(callback: Callback) -> Iterator[None]:
    """Report the progress of reading logs within a `with` block.

    Args:
        callback: A function of the path of the log, the number of bytes read so far, and the
            number of bytes of the log. The last call for a log has both equal. It is called in
            the thread that reads the log.

    Example:
        >>> with reporting(lambda path, done, total: print(path, done, total)):
        ...     pass
    """
    token = _callback.set(callback)
    try:
        yield
    finally:
        _callback.reset(token)


def report(path: Path, done: int, total: int) -> None:
    """Tell the callback, if there is one, that a part of a log is read.

    Args:
        path: The log.
        done: Number of bytes read so far.
        total: Number of bytes of the log.
    """
    callback = _callback.get()
    if callback is not None and total > SMALL:
        callback(path, done, total)
