"""Runs that the user stops."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import gossamer as gs
from gossamer.engines import Observer
from gossamer.study import Interrupted

# The package has a function of the same name, which hides the module.
running = importlib.import_module("gossamer.study.run")


@contextmanager
def stopped_after(calls: int) -> Iterator[Callable[[], bool]]:
    """Simulate Ctrl-C at the n-th check."""
    left = iter(range(calls))
    yield lambda: next(left, None) is None


def stop(
    study: gs.Study, folder: Path, monkeypatch: pytest.MonkeyPatch, calls: int, *observers: Observer
) -> None:
    """Run a study, and stop it at the n-th check."""
    with monkeypatch.context() as patch:
        patch.setattr(running, "_stop_on_signal", lambda: stopped_after(calls))
        with pytest.raises(Interrupted):
            gs.run(study, folder, resume=True, observers=observers)
