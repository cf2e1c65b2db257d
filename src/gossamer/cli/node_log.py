"""What `gossamer node` says while it runs: lines of text, or JSON objects."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import typer

from gossamer._core.columns import columns_of
from gossamer.errors import GossamerError
from gossamer.fleet.settings import Device
from gossamer.fleet.status import spec_of

LOGS = ("text", "json")
_LINE_SECONDS = 5  # period of lines of a device whose status does not change


class NodeLog:
    """A log that says nothing."""

    def on_status(self, status: dict[str, Any]) -> None:
        """Take a status of the device."""

    def on_event(self, sentence: str) -> None:
        """Take a sentence about what happened."""


class _Changes:
    """Lets a status pass when the device does something else, and otherwise every few seconds."""

    def __init__(self) -> None:
        self._doing = ""
        self._passed = 0.0

    def passes(self, status: dict[str, Any]) -> bool:
        recent = time.monotonic() - self._passed < _LINE_SECONDS
        if status["doing"] == self._doing and recent:
            return False
        self._doing = status["doing"]
        self._passed = time.monotonic()
        return True


class JsonLog(NodeLog):
    """A JSON object per line on standard error.

    Every object has `time`, `level` ("info" or "error"), `device` and `event`: "status" with the
    status of the device, "message" or "error" with a sentence as `message`.

    Args:
        device: Settings of the device.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._changes = _Changes()

    def on_status(self, status: dict[str, Any]) -> None:
        if self._changes.passes(status):
            more = {name: value for name, value in status.items() if name not in ("device", "time")}
            self._write("info", "status", more)

    def on_event(self, sentence: str) -> None:
        self._write("info", "message", {"message": sentence})

    def on_error(self, error: GossamerError) -> None:
        """Write why the device has ended."""
        more = {"message": str(error), "exit_code": error.exit_code}
        self._write("error", "error", more)

    def _write(self, level: str, event: str, more: dict[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "level": level, "device": self._device.name, "event": event, **more}
        typer.echo(json.dumps(line), err=True)


class TextLog(NodeLog):
    """A line when the status of a device changes, and otherwise every few seconds.

    Args:
        device: Settings of the device.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._changes = _Changes()
        self._start = datetime.fromtimestamp(device.start_time(), UTC)
        self._spec = spec_of(device)

    def on_event(self, sentence: str) -> None:
        typer.echo(f"{self._device.name}  {sentence}", err=True)

    def on_status(self, status: dict[str, Any]) -> None:
        if not self._changes.passes(status):
            return
        score = ""
        metrics = status.get("metrics", {})
        if metrics:
            column = columns_of(self._spec, list(metrics))[0]
            score = f"  {column.name} {column.value_text(metrics[column.name])}"
        typer.echo(f"{self._device.name}  {self._words(status)}{score}", err=True)

    def _words(self, status: dict[str, Any]) -> str:
        slots = self._device.fleet.pace == "slots"
        doing: str = status["doing"]
        if doing == "waiting":
            if slots and self._start > datetime.now(UTC):
                return f"waits for round 0, at {self._start:%Y-%m-%d %H:%M:%S %Z}"
            return "looks for its neighbours"
        if doing == "joining":
            late = "comes late: " if slots else ""
            return f"{late}asks its neighbours for a model"
        if doing == "resting":
            return f"rests: {status['why']}"
        if doing == "running":
            names = [self._name(j) for j in status["near"]]
            return (
                f"round {status['round']}/{status['rounds']}  sees {', '.join(names) or 'nobody'}"
            )
        return doing

    def _name(self, device: int) -> str:
        """Return the name of a device, which may have been added while this one runs."""
        names = self._device.names
        return names[device] if device < len(names) else f"n{device}"
