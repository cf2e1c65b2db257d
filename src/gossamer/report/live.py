"""`gossamer watch`: a local page that follows runs while they go. It only reads, and only answers this machine unless told.

A run is followed by its live.jsonl (see `gossamer.study.live`), a fleet by the logs that its devices write.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from gossamer.errors import GossamerError, InputError
from gossamer.fleet import settings as fleet
from gossamer.fleet.files import LOG, STATUS
from gossamer.network import Callback
from gossamer.report import gather, pack
from gossamer.report.links import Drawn
from gossamer.report.page import assemble, contents, measured_halfway, shown_rounds
from gossamer.results.find import select_runs
from gossamer.results.live import LineReader, RunFollower
from gossamer.results.run import Progress, Run
from gossamer.study.study import Study

_FRESH = 0.9  # seconds for which an answer is good
_SILENT = 10.0  # seconds without news after which that is said
_LOOKED_AT = 100  # rounds to come from which devices get their places
_CONNECTIONS = 16


# -- reading what is being written -------------------------------------------------------------------------------------------


class StudyFollower:
    """A run that is followed, with its study."""

    def __init__(self, folder: Path) -> None:
        self._follower = RunFollower(folder)
        self._study: Study | None = None

    def told(self) -> Run:
        run = self._follower.run()
        if self._study is None:
            run = gather.attach_study(run)
            self._study = run.study
        if self._study is not None:
            run = replace(run, study=self._study, method=self._study.algorithm.label)
        return run


class FleetFollower:
    """A fleet's folder, with those of its devices in it."""

    def __init__(self, folder: Path) -> None:
        self._base = replace(
            gather.attach_study(Run.read(folder, spec_name=fleet.STUDY)), summary={}
        )
        files = sorted(folder.glob("n*.toml"), key=lambda path: (len(path.name), path.name))
        self._devices = [fleet.read_device(path) for path in files]
        self._logs = [LineReader(device.folder / LOG) for device in self._devices]
        self._met: dict[int, set[tuple[int, int]]] = {}
        self._scores: list[dict[int, tuple[float, float]]] = [{} for _ in self._devices]
        self._sent: list[dict[int, tuple[int, int]]] = [{} for _ in self._devices]
        self.changed: set[int] = set()
        if self._base.study is not None:
            network = Callback(len(self._devices), lambda t: sorted(self._met.get(t + 1, ())))
            self._base = replace(self._base, study=replace(self._base.study, network=network))
        links = {
            "network": f"{len(self._devices)} devices, linked as they met"
        }  # in its study all could meet
        self._base = replace(self._base, spec=self._base.spec | links)

    def told(self) -> Run:
        for i, lines in enumerate(self._logs):
            with suppress(FileNotFoundError):  # it has not begun
                for line in lines.new()[1]:
                    self._take(i, line)
        statuses = self._statuses()
        rounds = int(self._base.spec.get("rounds", 0))
        done = [int(status.get("round", 0)) for status in statuses]
        over = bool(statuses) and all(
            status.get("doing") in ("done", "stopped", "diverged") for status in statuses
        )
        first = self._devices[0]
        left = max(0.0, first.start_time() + rounds * first.fleet.slot - time.time())
        now = Progress(max(done, default=0), left, 0.0)
        summary = {"finished": over and min(done) >= rounds, "rounds": max(done, default=0)}
        return replace(
            self._base, metrics=self._metrics(), summary=summary, progress=None if over else now
        )

    def _take(self, i: int, line: dict[str, Any]) -> None:
        t = line.get("round")
        if not isinstance(t, int):
            return
        for j in line.get("met", ()):
            if isinstance(j, int) and 0 <= j < len(self._devices) and j != i:
                self._met.setdefault(t, set()).add((min(i, j), max(i, j)))
                self.changed.add(t)
        self._sent[i][t] = int(line.get("messages", 0)), int(line.get("bytes", 0))
        if "loss" in line:
            self._scores[i][t] = float(line.get("accuracy", np.nan)), float(line["loss"])

    def _metrics(self) -> dict[str, Any]:
        """One row a round that somebody has measured; who was away then stands as it was last."""
        rounds = sorted({t for scores in self._scores for t in scores})
        if not rounds:
            return {}
        scores = np.stack(
            [_held(own, rounds, 2) for own in self._scores], axis=1
        )  # [rounds, devices, 2]
        sent = np.stack([_held(own, rounds, 2) for own in self._sent], axis=1)
        accuracy, loss = scores[..., 0], scores[..., 1]
        with np.errstate(all="ignore"):
            table = {
                "round": np.array(rounds),
                "accuracy": _over_known(np.nanmean, accuracy),
                "accuracy_worst": _over_known(np.nanmin, accuracy),
                "loss": _over_known(np.nanmean, loss),
                "loss_worst": _over_known(np.nanmax, loss),
                "messages": np.nansum(sent[..., 0], axis=1).astype(np.int64),
                "bytes": np.nansum(sent[..., 1], axis=1).astype(np.int64),
            }
        return table | {"device_accuracy": accuracy, "device_loss": loss}

    def _statuses(self) -> list[dict[str, Any]]:
        found = []
        for device in self._devices:
            with suppress(OSError, ValueError):
                status = json.loads((device.folder / STATUS).read_bytes())
                if isinstance(status, dict):
                    found.append(status)
        return found

    def rows(self) -> dict[str, Any]:
        """How every device is, as a table."""
        headings = ("device", "doing", "round", "accuracy", "loss", "sees", "sent", "last word")
        columns = [
            {"label": label, "unit": "", "number": label not in ("device", "doing")}
            for label in headings
        ]
        columns[3]["unit"], columns[6]["unit"], columns[7]["unit"] = "%", "MB", "ago"
        rows = []
        for status in self._statuses():
            number = int(status.get("device", -1))
            sent = self._sent[number] if 0 <= number < len(self._sent) else {}
            last = sent[max(sent)][1] * 1e-6 if sent else 0.0
            ago = max(0.0, time.time() - float(status.get("time", 0)))
            accuracy, loss = status.get("accuracy"), status.get("loss")
            rows.append(
                [
                    {"text": f"n{number}", "value": number},
                    {"text": str(status.get("doing", "")), "value": str(status.get("doing", ""))},
                    {"text": str(status.get("round", 0)), "value": status.get("round", 0)},
                    {
                        "text": "–" if accuracy is None else f"{100 * accuracy:.2f}",
                        "value": accuracy,
                    },
                    {"text": "–" if loss is None else f"{loss:.3f}", "value": loss},
                    {
                        "text": str(len(status.get("near", ()))),
                        "value": len(status.get("near", ())),
                    },
                    {"text": f"{last:.1f}", "value": last},
                    {"text": f"{ago:.0f} s", "value": round(ago)},
                ]
            )
        return {"columns": columns, "rows": rows}


def _held(
    known: dict[int, tuple[float, ...]] | dict[int, Any], rounds: Sequence[int], width: int
) -> Any:
    """What was known last at each of the rounds; not a number before the first."""
    times = sorted(known)
    table = np.array([known[t] for t in times], dtype=float).reshape(-1, width)
    at = np.searchsorted(times, rounds, side="right")
    return np.vstack([np.full((1, width), np.nan), table])[at]


def _over_known(of: Any, values: Any) -> Any:
    known = np.isfinite(values).any(axis=1)
    found = np.full(len(values), np.nan)
    found[known] = of(values[known], axis=1)
    return found


# -- what the page is told ---------------------------------------------------------------------------------------------------


class Watch:
    """Everything about a folder, ready for the page: a run, several runs, or a fleet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._followers: dict[Path, StudyFollower | FleetFollower] = {}
        self._drawn: dict[str, Drawn] = {}
        self._lock = threading.Lock()
        self._when, self._body, self._tag = 0.0, b"", ""
        self._runs: list[Run] = []
        self.title = ""
        self.content()  # so that what cannot be watched is refused at once

    def content(self) -> tuple[bytes, str]:
        """What there is to show, and a tag that changes with it."""
        with self._lock:
            if time.monotonic() - self._when >= _FRESH:
                content = self._look()
                self.title = content["title"]
                self._body = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
                self._tag = f'"{hashlib.blake2b(self._body, digest_size=12).hexdigest()}"'
                self._when = time.monotonic()
            return self._body, self._tag

    def data(self, k: int) -> bytes | None:
        """One run's measurements, those of single devices too."""
        with self._lock:
            if not 0 <= k < len(self._runs):
                return None
            run = self._runs[k]
        columns, block = gather.data(run)
        return json.dumps(
            {"columns": columns, "rows": len(run.metrics.get("round", ())), "block": block}
        ).encode()

    def _look(self) -> dict[str, Any]:
        told = [follower.told() for follower in self._all()]
        groups, notes = gather.grouped(told)
        self._runs = [run for group in groups for run in group.runs]
        networks: dict[str, dict[str, Any]] = {}
        more = []
        for run in self._runs:
            key, drawn = self._network(run)
            if drawn:
                networks[key] = drawn
            place = list(networks).index(key) if drawn else None
            more.append(
                {
                    "network": place,
                    "why": gather.why_no_study(run) or "nothing has been measured yet",
                    "progress": _progress(run),
                }
            )
        content = contents(groups, notes, more, list(networks.values()))
        fleets = [f.rows() for f in self._followers.values() if isinstance(f, FleetFollower)]
        return content | {"fleet": fleets[0] if fleets else None}

    def _all(self) -> list[StudyFollower | FleetFollower]:
        """A follower for each run; runs may come while we look."""
        if (self._folder / fleet.STUDY).is_file() and any(self._folder.glob("n*.toml")):
            if self._folder not in self._followers:
                self._followers[self._folder] = FleetFollower(self._folder)
        else:
            for path in select_runs([self._folder]):
                if path not in self._followers:
                    self._followers[path] = StudyFollower(path)
        return list(self._followers.values())

    def _network(self, run: Run) -> tuple[str, dict[str, Any] | None]:
        if run.study is None or not run.metrics:
            return "", None
        halfway = measured_halfway(run.study)
        key = json.dumps(
            [run.spec.get("network"), halfway, gather.short_name(run)], sort_keys=True, default=str
        )
        column = next(
            (run.metrics[name] for name in run.metrics if name.startswith("device_")), None
        )
        if column is None:
            return key, None
        known = run.metrics["round"][np.isfinite(column).any(axis=1)].tolist()
        with suppress(GossamerError):  # a network that cannot be drawn is no reason to stop
            if key not in self._drawn:
                rounds = (
                    0 if isinstance(run.study.network, Callback) else run.study.rounds
                )  # of a fleet nobody knows them yet
                self._drawn[key] = Drawn(
                    run.study.network, pack.evenly(rounds, _LOOKED_AT).tolist(), halfway
                )
            follower = self._followers.get(self._folder)
            if isinstance(follower, FleetFollower):
                for t in follower.changed:
                    self._drawn[key].forget(t)
                follower.changed.clear()
            return key, self._drawn[key].frames(
                shown_rounds(run.study.network, known, 1)
            ) if known else None
        return key, None


def _progress(run: Run) -> dict[str, Any]:
    total = run.spec.get("rounds") or 0
    done = run.progress.round if run.progress else run.summary.get("rounds", 0)
    facts = {
        "done": done,
        "of": total,
        "left": None,
        "silent": None,
        "going": run.progress is not None,
    }
    if run.progress:
        left, silent = run.progress.left, run.progress.silent
        facts |= {
            "left": None if left is None else round(left),
            "silent": round(silent) if silent > _SILENT else None,
        }
    newest = {}
    for name in ("accuracy", "loss", "distance"):
        if run.has(name):
            newest[name] = (
                float(f"{run.metrics[name][-1]:.4g}")
                if np.isfinite(run.metrics[name][-1])
                else None
            )
    return facts | newest


# -- the server --------------------------------------------------------------------------------------------------------------


class Server(ThreadingHTTPServer):
    """Answers GET for the page and its numbers, from who is meant to ask; nothing else.

    with Server(Path("runs/a")) as server: print(server.url); server.serve_forever()
    """

    daemon_threads = True

    def __init__(self, folder: Path, host: str = "127.0.0.1", port: int = 0) -> None:
        self.watch = Watch(folder)
        self._free = threading.BoundedSemaphore(_CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise InputError(
                "port", f"{host}:{port}", f"an address of this machine that is free ({reason})"
            ) from None
        self._anywhere = host in ("", "0.0.0.0", "::")
        self._names = {"localhost", "127.0.0.1", "::1", host.lower(), socket.gethostname().lower()}

    @property
    def url(self) -> str:
        host, port = self.server_address[0], self.server_address[1]
        host = host.decode() if isinstance(host, bytes) else host
        name = "127.0.0.1" if self._anywhere else f"[{host}]" if ":" in host else host
        return f"http://{name}:{port}/"

    def is_meant(self, host: str | None) -> bool:
        """Whether a request names this server: a foreign site whose name points here must not read along."""
        try:
            name = urlsplit(f"//{host or ''}").hostname or ""
        except ValueError:
            return False
        if name in self._names:
            return True
        with suppress(ValueError):
            return self._anywhere and bool(ipaddress.ip_address(name))
        return False

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that goes away in the middle is no error of ours."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = 10
    server_version, sys_version = "gossamer", ""

    def do_GET(self) -> None:
        if not self.server.is_meant(self.headers.get("Host")):
            self._answer(
                HTTPStatus.MISDIRECTED_REQUEST,
                b"this server is not known by that name\n",
                "text/plain",
            )
            return
        try:
            self._find()
        except GossamerError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n".encode(), "text/plain")

    def _find(self) -> None:
        data = re.fullmatch(r"/data/(\d{1,4})\.json", self.path)
        if self.path == "/":
            body, _ = self.server.watch.content()
            page = assemble("live", self.server.watch.title, json.loads(body), connect="'self'")
            self._answer(HTTPStatus.OK, page.encode(), "text/html")
        elif self.path == "/content.json":
            body, tag = self.server.watch.content()
            same = self.headers.get("If-None-Match") == tag
            self._answer(
                HTTPStatus.NOT_MODIFIED if same else HTTPStatus.OK,
                b"" if same else body,
                "application/json",
                tag,
            )
        elif data and (found := self.server.watch.data(int(data[1]))) is not None:
            self._answer(HTTPStatus.OK, found, "application/json")
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"there is nothing here\n", "text/plain")

    def _answer(self, status: HTTPStatus, body: bytes, kind: str, tag: str = "") -> None:
        self.send_response(status)
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "X-Frame-Options": "DENY",
            **({"ETag": tag} if tag else {}),
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal is the user's."""
