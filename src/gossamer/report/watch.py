"""The content of the live page: everything about a folder, read again while runs go."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.errors import DataError, GossamerError
from gossamer.report import grouping, pack
from gossamer.report.content import contents, measured_halfway, measurements
from gossamer.report.followers import FleetRun, Follower, SimulatedRun, is_fleet
from gossamer.report.links import Drawn, frame_plan
from gossamer.results.find import select_runs
from gossamer.results.run import Run
from gossamer.results.tables import runs_of

_FRESH_SECONDS = 0.9  # age up to which content is not read again
_SILENT_SECONDS = 10.0  # silence of a run after which the page reports it
# Largest size of a network's links before compression: they are sent repeatedly.
_LINK_BYTES = 500_000
_LAYOUT_ROUNDS = 100  # future rounds whose links determine the layout of the devices


class Watch:
    """A run, several runs or a fleet, as the live page shows them."""

    def __init__(self, folder: Path, connect: Sequence[str] = ()) -> None:
        """Read the folder.

        Args:
            folder: A run folder, a folder with runs in it, or a fleet's folder.
            connect: Devices of a fleet to follow over the network.

        Raises:
            GossamerError: The folder cannot be watched.
        """
        if connect and not is_fleet(folder):
            raise DataError(f"{folder} has no fleet to connect to: `gossamer fleet init` makes one")
        self._folder = folder
        self._connect = connect
        self._followers: dict[Path, Follower] = {}
        self._pictures: dict[str, Drawn] = {}
        self._lock = threading.Lock()
        self._read_at = 0.0
        self._body = b""
        self._tag = ""
        self._runs: list[Run] = []
        self.title = ""
        self.content()

    def close(self) -> None:
        """Leave the network of a fleet, if the page follows one."""
        for follower in self._followers.values():
            follower.close()

    def content(self) -> tuple[bytes, str]:
        """Return the content as JSON, and a tag that changes with it."""
        with self._lock:
            if time.monotonic() - self._read_at >= _FRESH_SECONDS:
                content = self._read()
                self.title = content["title"]
                self._body = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
                self._tag = f'"{hashlib.blake2b(self._body, digest_size=12).hexdigest()}"'
                self._read_at = time.monotonic()
            return self._body, self._tag

    def data(self, k: int) -> bytes | None:
        """Return one run's measurements as JSON, those of single devices too.

        Args:
            k: The position of the run in the content.

        Returns:
            The JSON document; None if there is no such run.
        """
        with self._lock:
            if not 0 <= k < len(self._runs):
                return None
            run = self._runs[k]
        columns, block = measurements(run)
        rows = len(run.metrics.get("round", ()))
        return json.dumps({"columns": columns, "rows": rows, "block": block}).encode()

    def _read(self) -> dict[str, Any]:
        self._find_runs()
        runs = [follower.run() for follower in self._followers.values()]
        methods, notes = grouping.group_by_method(runs)
        self._runs = runs_of(methods)
        indices: dict[str, int] = {}
        networks: list[dict[str, Any]] = []
        details = []
        for run in self._runs:
            key, drawn = self._network(run)
            if drawn is not None and key not in indices:
                indices[key] = len(networks)
                networks.append(drawn)
            details.append(
                {
                    "network": indices[key] if drawn is not None else None,
                    "why": grouping.missing_study(run) or "nothing has been measured yet",
                    "progress": progress_facts(run),
                }
            )
        content = contents(methods, notes, details, networks)
        content["fleet"] = None
        for follower in self._followers.values():
            content["fleet"] = content["fleet"] or follower.devices_table()
        return content

    def _find_runs(self) -> None:
        """Follow every run in the folder; more may come while it is watched."""
        if is_fleet(self._folder):
            if self._folder not in self._followers:
                self._followers[self._folder] = FleetRun(self._folder, self._connect)
            return
        for path in select_runs([self._folder]):
            if path not in self._followers:
                self._followers[path] = SimulatedRun(path)

    def _network(self, run: Run) -> tuple[str, dict[str, Any] | None]:
        """Return a key for a run's network and the network as the page draws it, if it can."""
        if run.study is None or run.folder is None or not run.metrics:
            return "", None
        halfway = measured_halfway(run.study)
        name = grouping.short_name(run)
        key = json.dumps([run.spec.get("network"), halfway, name], sort_keys=True, default=str)
        network = run.study.network
        follower = self._followers[run.folder]
        with suppress(GossamerError):  # a network that cannot be drawn does not stop the page
            if key not in self._pictures:
                known = pack.evenly(follower.known_rounds(run), _LAYOUT_ROUNDS).tolist()
                self._pictures[key] = Drawn(network, known, halfway)
            picture = self._pictures[key]
            for t in follower.changed_rounds():
                picture.forget(t)
            rounds = max(run.round, int(run.metrics["round"][-1]))
            return key, picture.frames(frame_plan(network, rounds, _LINK_BYTES))
        return key, None


def progress_facts(run: Run) -> dict[str, Any]:
    """Return how far a run is and how it does, for a line of the live page.

    Args:
        run: A run of any status.
    """
    facts: dict[str, Any] = {
        "done": run.summary.get("rounds", 0),
        "of": run.spec.get("rounds") or 0,
        "left": None,
        "silent": None,
        "going": run.progress is not None,
    }
    if run.progress is not None:
        facts["done"] = run.progress.round
        if run.progress.left is not None:
            facts["left"] = round(run.progress.left)
        if run.progress.silent > _SILENT_SECONDS:
            facts["silent"] = round(run.progress.silent)
    facts["score"] = _score_words(run)
    facts["distance"] = None
    if run.has("distance") and np.isfinite(run.metrics["distance"][-1]):
        facts["distance"] = float(f"{run.metrics['distance'][-1]:.4g}")
    return facts


def _score_words(run: Run) -> str | None:
    """Return the newest value of the first metric, and that of the merged model."""
    column = run.column
    if not run.has(column.name):
        return None
    words = f"{column.name} {column.value_text(float(run.metrics[column.name][-1]))}"
    if run.has(f"{column.name}_merged"):
        merged = float(run.metrics[f"{column.name}_merged"][-1])
        words += f", merged {column.value_text(merged)}"
    return words
