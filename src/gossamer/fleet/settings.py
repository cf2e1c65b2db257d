"""A fleet as data: `[fleet]` of a spec, and the file of one device."""

from __future__ import annotations

import dataclasses
import re
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

from gossamer._core import checks
from gossamer.errors import InputError
from gossamer.study import spec

_RUN = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Fleet:
    """What all devices of a fleet have in common.

    A round takes a `slot` of so many seconds, by a clock that all share (NTP, GPS). `wire`: the numbers that are sent. `bound`:
    the largest |value| of a vector that is no nonsense. `join`: how a device begins that comes late: from a neighbour's model,
    or its own. `history`: how many MB of models, of the rounds that are measured, a device may keep. `sync`: whether what
    is written outlives a power cut, too; a process that is killed it outlives in any case.

    >>> Fleet(slot=2.0).lease
    1.0
    """

    slot: float = 5.0
    wire: Literal["float32", "bfloat16", "float64"] = "float32"
    bound: float = 1e6
    join: Literal["neighbour", "own"] = "neighbour"
    history: float = 64.0
    sync: bool = True
    lease: float = 1.0  # seconds of silence after which a link is dead
    multicast: bool = True  # find neighbours on the local network
    insecure: bool = False  # no certificates: for a bench

    def __post_init__(self) -> None:
        checks.number("slot", self.slot, least=0.1, most=86_400, noun="seconds")
        checks.one_of("wire", self.wire, ("float32", "bfloat16", "float64"))
        checks.positive("bound", self.bound)
        checks.one_of("join", self.join, ("neighbour", "own"))
        checks.not_negative("history", self.history, "megabytes")
        checks.number("lease", self.lease, least=0.2, most=60, noun="seconds")


@dataclass(frozen=True)
class Device:
    """One device's file. `names` are those in the certificates of all devices, by number; `classes` and `shape` (of a sample)
    are those of the data of all.

    `start` is when round 0 begins, such as "2030-01-31T12:00:00Z". `folder` holds the certificate, the samples, and what the
    device keeps; `study` is the spec; both are beside the file. `listen` and `connect` are host:port; `clock` is added to the
    device's clock, in seconds.
    """

    run: str
    device: int
    names: tuple[str, ...]
    start: str
    folder: Path
    study: Path = Path("study.toml")
    classes: int | None = None
    shape: tuple[int, ...] = ()
    listen: tuple[str, ...] = ("0.0.0.0:7447",)
    connect: tuple[str, ...] = ()
    interface: str = "auto"
    clock: float = 0.0
    fleet: Fleet = field(default_factory=Fleet)

    def __post_init__(self) -> None:
        if not _RUN.fullmatch(self.run):
            raise InputError("run", self.run, "32 hexadecimal digits")
        checks.whole("device", self.device, 0, len(self.names) - 1)
        self.started()
        checks.number("clock", self.clock, noun="a number of seconds")

    def started(self) -> float:
        """When round 0 begins, in seconds since 1970."""
        with suppress(ValueError):
            when = datetime.fromisoformat(self.start)
            if when.tzinfo is not None:
                return when.timestamp()
        raise InputError(
            "start", self.start, 'a time with its zone, such as "2030-01-31T12:00:00Z"'
        )

    @property
    def name(self) -> str:
        return self.names[self.device]


def read_fleet(table: spec.Table) -> Fleet:
    """Return the [fleet] table of a spec as settings, with defaults for what it leaves out."""
    made: Fleet = spec.build_dataclass(Fleet, table.get("fleet", {}), "fleet")
    return made


def read_device(table: spec.Table) -> Device:
    """Return the settings of one device from the tables of its file."""
    spec.check_keys(table, [f.name for f in dataclasses.fields(Device)], "")
    plain = {key: value for key, value in table.items() if key != "fleet"}
    made: Device = spec.build_dataclass(Device, plain, "device")
    return dataclasses.replace(made, fleet=read_fleet(table))
