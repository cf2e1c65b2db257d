"""What is known of the devices of a fleet, from their files and from what they publish.

Everything that a device publishes is parsed into numbers and known words, so that no text of a
device reaches a terminal.
"""

from __future__ import annotations

import math
import threading
import time
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pydantic

from gossamer._core.columns import Column, columns_of
from gossamer.fleet.files import STATUS
from gossamer.fleet.members import read_members, with_members
from gossamer.fleet.notices import Kind
from gossamer.fleet.provision import OBSERVER, endpoints
from gossamer.fleet.rest import Why
from gossamer.fleet.settings import Device, read_devices
from gossamer.fleet.transport.configuration import STATUS_BYTES, LinkSettings
from gossamer.fleet.transport.observer import Observer

Doing = Literal[
    "waiting", "joining", "running", "resting", "done", "stopped", "diverged", "unreadable"
]
# Time in which every reachable device is found and publishes its status.
LISTEN_SECONDS = 6.0
_ENDED = ("done", "stopped", "diverged")  # activities after which a device publishes nothing more
_SILENT = (*_ENDED, "resting", "unreadable")  # activities in which no status is overdue
_COUNTS = ("committed", "failed", "in doubt", "late", "missed")
_LARGEST_FILE = 16 * STATUS_BYTES  # bytes of a status file; on disk the status is not shortened


def _finite_or_none(value: Any) -> Any:
    """Return None for NaN and infinity, which Python writes though JSON has no such numbers."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


_Count = Annotated[int, pydantic.Field(ge=0, lt=1 << 53)]
_Devices = Annotated[tuple[_Count, ...], pydantic.Field(max_length=1 << 16)]
_Measured = Annotated[float | None, pydantic.BeforeValidator(_finite_or_none)]
_MAX_METRICS = 100  # entries of a status
_MAX_NOTICES = 100  # entries of a status


@dataclass(frozen=True)
class Notice:
    """A notice of a device: its kind, the device that it is about, and how often."""

    kind: Kind
    count: _Count
    device: _Count | None = None


@dataclass(frozen=True)
class Status:
    """The status of a device, with the names that it has in JSON.

    Args:
        doing: What the device does.
        time: When this was so: by the clock of this machine if it came over the network.
        round: Rounds done.
        rounds: Rounds of the run.
        near: The neighbours.
        met: The neighbours with whom it exchanged in the last round.
        loss: The last measurement.
        metrics: The last measurement of each metric, by name.
        why: Why a device rests.
        pending: Transfers in doubt.
        counts: Numbers of messages and exchanges.
        notices: What the owner of the fleet should look at.
    """

    doing: Doing
    time: Annotated[float, pydantic.Field(ge=0, lt=1e11, allow_inf_nan=False)]
    round: _Count = 0
    rounds: _Count = 0
    near: _Devices = ()
    met: _Devices = ()
    loss: _Measured = None
    metrics: Annotated[dict[str, _Measured], pydantic.Field(max_length=_MAX_METRICS)] = field(
        default_factory=dict
    )
    why: Why = ""
    pending: _Count = 0
    counts: Annotated[dict[str, _Count], pydantic.Field(max_length=100)] = field(
        default_factory=dict
    )
    notices: Annotated[tuple[Notice, ...], pydantic.Field(max_length=_MAX_NOTICES)] = ()

    @property
    def refused(self) -> int:
        """Number of messages refused."""
        return sum(count for name, count in self.counts.items() if name.startswith("refused"))


_PARSER = pydantic.TypeAdapter(Status)


def parse_status(data: bytes, devices: int, now: float) -> Status:
    """Return the status in these bytes, which need not come from an honest device.

    Args:
        data: JSON.
        devices: Number of devices; others are removed from lists of neighbours.
        now: The latest time that is believed.

    Returns:
        The status; `doing` is "unreadable" if it cannot be parsed.

    Example:
        >>> data = b'{"doing": "running", "time": 5, "near": [0, 2, 9]}'
        >>> parse_status(data, devices=3, now=7.0).near
        (0, 2)
        >>> parse_status(b"[[[", devices=3, now=7.0).doing
        'unreadable'
    """
    try:
        status = _PARSER.validate_json(data, strict=True)
    except ValueError:
        return Status("unreadable", 0.0)
    return replace(
        status,
        round=min(status.round, status.rounds),
        near=tuple(sorted({j for j in status.near if j < devices})),
        met=tuple(sorted({j for j in status.met if j < devices})),
        time=min(status.time, now),
    )


class FleetStatus:
    """The devices of a folder, and what is known of each.

    Args:
        folder: The folder of a fleet, or of a device.

    Raises:
        DataError: If the folder has no device.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        found = read_devices(folder)
        authority = folder / OBSERVER
        if not authority.is_dir():
            authority = found[0].folder  # the folder of a single device
        listed = read_members(found[0], authority)
        self._refused = listed.refused
        self.devices = {}
        for device in found:
            self.devices[device.device] = with_members(device, listed)
        self.any_device: Device = next(iter(self.devices.values()))
        self._spec = spec_of(self.any_device)
        self._published: dict[int, Status] = {}
        self._lock = threading.Lock()

    def observe(self, connect: list[str]) -> Observer | None:
        """Join the network of the fleet, if it can be joined from here.

        Args:
            connect: Hosts to dial, each as host or host:port, also several separated by commas.

        Returns:
            The observer, which the caller closes; None without a way to find devices.

        Raises:
            InputError: If a host is malformed.
            DataError: If the certificate of the observer cannot be used.
        """
        fleet = self.any_device.fleet
        certificates = self._folder / OBSERVER
        hosts = [host.strip() for listed in connect for host in listed.split(",")]
        dialled = endpoints(hosts, "connect")
        if not dialled and not fleet.multicast:
            return None  # a rehearsal, or a fleet with hosts: nobody can be found
        if not (dialled or fleet.insecure or certificates.is_dir()) and self.latest():
            return None  # the folder of a single device
        settings = LinkSettings(
            run=self.any_device.run,
            names=self.any_device.names,
            certificates=None if fleet.insecure else certificates,
            insecure=fleet.insecure,
            connect=tuple(dialled),
            multicast=fleet.multicast,
            lease=fleet.lease,
            refused=self._refused,
        )
        return Observer(settings, self.on_status)

    def wait_for_all(self) -> None:
        """Wait until every device has published its status, for at most `LISTEN_SECONDS`."""
        until = time.monotonic() + LISTEN_SECONDS
        while time.monotonic() < until and len(self._published) < len(self.members()):
            time.sleep(0.1)

    def on_status(self, device: int, data: bytes) -> None:
        """Take a status from the network. The time is that of arrival, not the device's own.

        Args:
            device: The device, authenticated by the transport.
            data: The status as JSON.
        """
        now = time.time()
        status = parse_status(data[:STATUS_BYTES], len(self.any_device.names), now)
        with self._lock:
            self._published[device] = replace(status, time=now)

    def latest(self) -> dict[int, Status]:
        """Return the newest status of every device that has one."""
        with self._lock:
            found = dict(self._published)
        for i, device in self.devices.items():
            with suppress(OSError), (device.folder / STATUS).open("rb") as file:
                data = file.read(_LARGEST_FILE)
                written = parse_status(data, len(self.any_device.names), time.time())
                if i not in found or written.time > found[i].time:
                    found[i] = written
        return found

    def silent_seconds(self, status: Status) -> float | None:
        """Return for how long a device is overdue; None if it is not.

        A device writes its status at least twice per round and publishes it every few seconds.
        Before round 0 of a shared clock it writes nothing.

        Args:
            status: Its last status.
        """
        last = status.time
        fleet = self.any_device.fleet
        longest = fleet.slot
        if fleet.pace == "contacts":
            longest = fleet.patience + fleet.timeout
        elif status.doing == "waiting":
            last = max(last, self.any_device.start_time())
        silent = time.time() - last
        overdue = silent > max(LISTEN_SECONDS, 2 * longest) + fleet.lease
        if overdue and status.doing not in _SILENT:
            return silent
        return None

    def all_done(self) -> bool:
        """Return True if every device is done."""
        found = self.latest()
        return all(i in found and found[i].doing == "done" for i in self.members())

    def members(self) -> list[int]:
        """Return the numbers of the devices that belong to the fleet."""
        names = enumerate(self.any_device.names)
        return [i for i, name in names if name not in self._refused]

    def names(self, devices: Iterable[int]) -> list[str]:
        """Return the names of devices.

        Args:
            devices: Their numbers.
        """
        return [self.any_device.names[j] for j in devices]

    def summary(self) -> str:
        """Return the fleet in one line: round, first metric, links used of those alive."""
        members = self.members()
        known = {}
        for i, status in self.latest().items():
            if i in members and status.doing != "unreadable":
                known[i] = status
        if not known:
            return "no device has been heard of"
        present = {i: s for i, s in known.items() if self.silent_seconds(s) is None}
        running = {i: s for i, s in present.items() if s.doing not in _ENDED}
        # The median, so that no single device decides.
        median = sorted(known.values(), key=lambda status: status.round)[len(known) // 2]
        words = [f"round {median.round}/{median.rounds}"]
        words += self._metric_words(known.values())
        if running:
            met = _pairs({i: status.met for i, status in running.items()})
            near = _pairs({i: status.near for i, status in running.items()})
            words.append(f"links {len(met)}/{len(met | near)}")
        if away := len(members) - len(present):
            words.append(f"{away} of {len(members)} silent or not seen")
        return "  ".join(words)

    def _metric_words(self, statuses: Iterable[Status]) -> list[str]:
        """Return the first metric: its mean over the devices, and the range from worst to best."""
        column = self.column
        values = []
        for status in statuses:
            value = measured(status, column)
            if value is not None:
                values.append(value)
        if not values:
            return []
        found = np.array(values)
        mean = column.value_text(float(found.mean()))
        worst = column.value_text(column.worst(found)).removesuffix(column.printed_unit).strip()
        best = column.value_text(column.best(found)).removesuffix(column.printed_unit).strip()
        return [f"{column.name} {mean} ({worst}–{best})"]

    @property
    def columns(self) -> list[Column]:
        """The metrics of the study, of those that devices report; the loss is the last."""
        reported: dict[str, None] = {}
        for status in self.latest().values():
            reported |= dict.fromkeys(status.metrics)
        return columns_of(self._spec, list(reported))

    @property
    def column(self) -> Column:
        """The first metric of the study, else the loss."""
        return self.columns[0]

    def rows(self) -> list[dict[str, Any]]:
        """Return what is known of each device as plain values."""
        found = self.latest()
        rows = []
        for i in self.members():
            rows.append({"name": self.any_device.names[i], **self._row(found.get(i))})
        return rows

    def _known_metrics(self, status: Status) -> dict[str, float | None]:
        """Return the metrics of the study: no text of a device reaches a terminal."""
        known = columns_of(self._spec, list(status.metrics))
        return {column.name: status.metrics[column.name] for column in known[:-1]}

    def _row(self, status: Status | None) -> dict[str, Any]:
        if status is None:
            return {"doing": "not seen"}
        silent = self.silent_seconds(status)
        return {
            "doing": status.doing,
            "why": status.why,
            "silent": None if silent is None else round(silent, 1),
            "round": status.round,
            "rounds": status.rounds,
            "sees": self.names(status.near),
            "met": self.names(status.met),
            "loss": status.loss,
            "metrics": self._known_metrics(status),
            **{name.replace(" ", "_"): status.counts.get(name, 0) for name in _COUNTS},
            "pending": status.pending,
            "refused": status.refused,
            "bytes_sent": status.counts.get("bytes sent", 0),
            "notices": [self._notice_words(notice) for notice in status.notices],
        }

    def _notice_words(self, notice: Notice) -> str:
        """Return a notice in known words: no text of a device reaches a terminal."""
        words: str = notice.kind
        if notice.device is not None:
            names = (*self.any_device.names, OBSERVER)
            words += f" ({names[min(notice.device, len(names) - 1)]})"
        return f"{words} ×{notice.count}"


def measured(status: Status, column: Column) -> float | None:
    """Return the last measurement of a metric, or of the loss; None if there is none.

    Args:
        status: The status of a device.
        column: The metric.
    """
    if column.name == "loss":
        return status.loss
    return status.metrics.get(column.name)


def spec_of(device: Device) -> dict[str, Any]:
    """Return the spec beside a device's file as plain tables; empty if it cannot be read.

    Args:
        device: Settings of the device.
    """
    try:
        return tomllib.loads(device.study.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _pairs(neighbours: dict[int, tuple[int, ...]]) -> set[frozenset[int]]:
    """Return the links between devices and those that they list."""
    pairs = set()
    for i, others in neighbours.items():
        for j in others:
            if i != j:
                pairs.add(frozenset((i, j)))
    return pairs
