"""Follow runs and fleets while they go, for the live page."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gossamer.fleet.files import LOG
from gossamer.fleet.settings import STUDY
from gossamer.fleet.status import FleetStatus, Status, measured
from gossamer.network import Callback
from gossamer.report import grouping
from gossamer.report.page_tables import Table, cell, heading
from gossamer.results.live import LineReader, RunFollower
from gossamer.results.run import Progress, Run

FloatArray = NDArray[np.float64]
_ENDED = ("done", "stopped", "diverged")  # activities of a device that no longer takes part


class Follower(Protocol):
    """What the live page asks of a run or a fleet."""

    def run(self) -> Run:
        """Return the run as it stands now."""

    def known_rounds(self, run: Run) -> int:
        """Return the number of rounds whose links are known before they are run."""

    def changed_rounds(self) -> set[int]:
        """Return the rounds whose links have changed since the last call."""

    def devices_table(self) -> Table | None:
        """Return the state of every device; None if the run has no devices of its own."""

    def close(self) -> None:
        """Leave the network, if the run is followed over one."""


class SimulatedRun:
    """A run in one folder, followed with its study."""

    def __init__(self, folder: Path) -> None:
        """Read the run.

        Args:
            folder: The run folder.
        """
        self._follower = RunFollower(folder)
        first = grouping.attach_study(self._follower.run())
        self._study = first.study
        self._method = first.method

    def run(self) -> Run:
        run = self._follower.run()
        return replace(run, study=self._study, method=self._method or run.method)

    def known_rounds(self, run: Run) -> int:
        return run.rounds

    def changed_rounds(self) -> set[int]:
        return set()

    def devices_table(self) -> Table | None:
        return None

    def close(self) -> None:
        """Nothing is open."""


class FleetRun:
    """A fleet's folder, followed by the logs that devices write in it, or over the network.

    Over the network a device tells its newest status only: rounds that it ran before are not known.
    """

    def __init__(self, folder: Path, connect: Sequence[str] = ()) -> None:
        """Read the fleet.

        Args:
            folder: The folder that `gossamer fleet init` has made.
            connect: Devices to follow over the network, each as host or host:port.
        """
        self._fleet = FleetStatus(folder)
        self._observer = self._fleet.observe(list(connect)) if connect else None
        self._count = len(self._fleet.any_device.names)
        self._logs: dict[int, LineReader] = {}
        for number, device in self._fleet.devices.items():
            self._logs[number] = LineReader(device.folder / LOG)
        self._links: dict[int, set[tuple[int, int]]] = {}
        # Per device and round: loss and metrics by name; messages and bytes sent so far.
        self._scores: list[dict[int, dict[str, float]]] = [{} for _ in range(self._count)]
        self._sent: list[dict[int, dict[str, float]]] = [{} for _ in range(self._count)]
        self._changed: set[int] = set()
        self._base = self._read_base(folder)

    def _read_base(self, folder: Path) -> Run:
        """Return the fleet's run without measurements; its network has the links that were used."""
        base = grouping.attach_study(Run.read(folder, spec_name=STUDY))
        if base.study is not None:
            network = Callback(self._count, lambda t: sorted(self._links.get(t + 1, ())))
            base = replace(base, study=replace(base.study, network=network))
        # The study of a fleet lets all devices meet.
        spec = base.spec | {"network": f"{self._count} devices, linked as they met"}
        return replace(base, spec=spec, summary={})

    def run(self) -> Run:
        for device, log in self._logs.items():
            with suppress(FileNotFoundError):  # the device has not begun, or is not here
                for line in log.new()[1]:
                    self._take(device, line)
        latest = self._fleet.latest()
        for device, status in latest.items():
            if self._observer is not None and status.round not in self._sent[device]:
                self._take(device, _line_of(status))
        statuses = latest.values()
        rounds = self._base.rounds
        done = [status.round for status in statuses]
        newest = max(done, default=0)
        ended = bool(statuses) and all(status.doing in _ENDED for status in statuses)
        progress = None
        if not ended:
            first = self._fleet.any_device
            left = first.start_time() + rounds * first.fleet.slot - time.time()
            progress = Progress(newest, max(0.0, left), silent=0.0)
        summary = {"finished": ended and min(done) >= rounds, "rounds": newest}
        return replace(self._base, metrics=self._metrics(), summary=summary, progress=progress)

    def close(self) -> None:
        if self._observer is not None:
            self._observer.close()

    def known_rounds(self, run: Run) -> int:
        return 0  # devices meet as they can

    def changed_rounds(self) -> set[int]:
        changed = self._changed
        self._changed = set()
        return changed

    def devices_table(self) -> Table | None:
        columns = [
            heading("device", number=False),
            heading("doing", number=False),
            heading("round"),
        ]
        for column in self._fleet.columns:
            columns.append(heading(column.name, column.printed_unit))
        columns.append(heading("sees"))
        columns.append(heading("sent", "MB"))
        columns.append(heading("last word", "ago"))
        statuses = sorted(self._fleet.latest().items())
        return {"columns": columns, "rows": [self._row(*status) for status in statuses]}

    def _row(self, device: int, status: Status) -> list[dict[str, Any]]:
        sent = self._sent[device]
        megabytes = sent[max(sent)]["bytes"] * 1e-6 if sent else 0.0
        ago = max(0.0, time.time() - status.time)
        neighbours = len(status.near)
        cells = [
            cell(f"n{device}", device),
            cell(f"{status.doing} ({status.why})" if status.why else status.doing, status.doing),
            cell(str(status.round), status.round),
        ]
        for column in self._fleet.columns:
            value = measured(status, column)
            cells.append(cell(column.text(value), value))
        cells.append(cell(str(neighbours), neighbours))
        cells.append(cell(f"{megabytes:.1f}", megabytes))
        cells.append(cell(f"{ago:.0f} s", round(ago)))
        return cells

    def _take(self, device: int, line: dict[str, Any]) -> None:
        """Take in a line of a device's log."""
        t = line.get("round")
        if not isinstance(t, int):
            return
        for other in line.get("met", ()):
            if isinstance(other, int) and 0 <= other < self._count and other != device:
                pair = (min(device, other), max(device, other))
                self._links.setdefault(t, set()).add(pair)
                self._changed.add(t)
        self._sent[device][t] = {name: int(line.get(name, 0)) for name in ("messages", "bytes")}
        if "loss" in line:
            scores = {"loss": float(line["loss"])}
            for name, value in line.get("metrics", {}).items():
                scores[name] = float(value)
            self._scores[device][t] = scores

    def _metrics(self) -> dict[str, Any]:
        """Return a row per round that any device has measured, with each device's last values."""
        rounds = sorted({t for scores in self._scores for t in scores})
        if not rounds:
            return {}
        metrics: dict[str, Any] = {"round": np.array(rounds)}
        for column in self._fleet.columns:
            name = column.name
            values = np.stack([_last_known(own, name, rounds) for own in self._scores], axis=1)
            worst, best = (np.nanmin, np.nanmax) if column.rising else (np.nanmax, np.nanmin)
            metrics[name] = _over_devices(np.nanmean, values)
            metrics[f"{name}_worst"] = _over_devices(worst, values)
            metrics[f"{name}_best"] = _over_devices(best, values)
            metrics[f"device_{name}"] = values
        for name in ("messages", "bytes"):
            sent = np.stack([_last_known(own, name, rounds) for own in self._sent], axis=1)
            metrics[name] = np.nansum(sent, axis=1).astype(np.int64)
        return metrics


def _line_of(status: Status) -> dict[str, Any]:
    """Return a status as a line of a device's log."""
    line: dict[str, Any] = {
        "round": status.round,
        "met": status.met,
        "messages": status.counts.get("sent", 0),
        "bytes": status.counts.get("bytes sent", 0),
    }
    if status.loss is not None:
        line["loss"] = status.loss
        known = status.metrics.items()
        line["metrics"] = {name: value for name, value in known if value is not None}
    return line


def is_fleet(folder: Path) -> bool:
    """True if a folder is a fleet's.

    Args:
        folder: Any folder.
    """
    return (folder / STUDY).is_file() and any(folder.glob("n*.toml"))


def _last_known(known: dict[int, dict[str, float]], name: str, rounds: Sequence[int]) -> FloatArray:
    """Return the values known last at each of the rounds; NaN before the first."""
    times = sorted(known)
    values = [np.nan]
    for t in times:
        values.append(known[t].get(name, np.nan))
    before = np.searchsorted(times, rounds, side="right")
    found: FloatArray = np.array(values, dtype=float)[before]
    return found


def _over_devices(reduce: Callable[..., Any], values: FloatArray) -> FloatArray:
    """Reduce [rounds, devices] over the devices with a value; NaN where no device has one."""
    known = np.isfinite(values).any(axis=1)
    found = np.full(len(values), np.nan)
    with np.errstate(all="ignore"):
        found[known] = reduce(values[known], axis=1)
    return found
