"""Ctrl-C at a chosen moment of a run, without a signal."""

from __future__ import annotations

import importlib
import threading
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import pytest

import gossamer as gs
from gossamer.engines import Observer
from gossamer.study import Interrupted

# The package has a function of the same name, which hides the module.
running = importlib.import_module("gossamer.study.run")


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


def stop(
    study: gs.Study, folder: Path, monkeypatch: pytest.MonkeyPatch, calls: int, *observers: Observer
) -> None:
    """Run a study, and stop it at the n-th check."""
    with monkeypatch.context() as patch:
        patch.setattr(running, "stop_on_signal", partial(stop_after, calls))
        with pytest.raises(Interrupted):
            gs.run(study, folder, resume=True, observers=observers)
