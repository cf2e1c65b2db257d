"""Fixtures that the tests of fleets share."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fleet_commands import SPEC


@pytest.fixture
def fleet_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Change to an empty folder with a spec, and restore the signal handlers of `gossamer node`."""
    monkeypatch.chdir(tmp_path)
    Path("fleet.toml").write_text(SPEC)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
