"""Ctrl-C at a chosen moment of a run, without a signal."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext


class _SetAfterChecks(threading.Event):
    """An event that is set from its n-th check on."""

    def __init__(self, checks: int) -> None:
        super().__init__()
        self._left = checks

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0


def stop_after(checks: int) -> AbstractContextManager[threading.Event]:
    """Return what `stop_on_signal` returns, as if Ctrl-C came before the n-th check."""
    return nullcontext(_SetAfterChecks(checks))
