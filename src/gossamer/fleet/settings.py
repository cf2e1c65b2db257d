"""The settings of a fleet: the [fleet] table of a spec, and the file of each device."""

from __future__ import annotations

import dataclasses
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import tomli_w

from gossamer._core import checks
from gossamer._core.files import write_atomically
from gossamer.errors import DataError, InputError
from gossamer.fleet.rest import minutes_of
from gossamer.study import spec

STUDY = "study.toml"  # the spec, in the folder of a fleet and on every device
_RUN = re.compile(r"[0-9a-f]{32}")
_DEVICE_FILES = "n*.toml"


@dataclass(frozen=True)
class Fleet:
    """The settings that all devices of a fleet share.

    Args:
        pace: "slots": rounds begin by a clock that all devices share. "contacts": two devices
            exchange as soon as they see each other and both are ready; no clock is shared.
        slot: Seconds per round, by a clock that all devices share (NTP, GPS). At the pace of
            contacts it is only how long the links of a round last in a rehearsal.
        patience: At the pace of contacts, seconds that a device waits for a partner; then it takes
            a step alone.
        timeout: At the pace of contacts, seconds after which an exchange is given up.
        wire: dtype of the vectors that are sent.
        bound: Largest absolute value that is accepted in a vector.
        guard: Largest length of a received vector, in lengths of the own one; a longer one is not
            acknowledged, so the exchange counts for neither end. Vectors with a root mean square of
            at most 1 are always accepted. 0: no limit.
        join: What a late device starts from: a neighbour's model, or its own initial model.
        history: Megabytes of models, of the rounds that are measured, that a device may keep.
        model_every: Rounds after which a device writes its current model again, for other programs
            (0: only when it ends).
        budget: Megabytes per hour that a device may send and receive together; 0: no limit.
        quiet: Times of day, by a device's local time, at which it takes no part: ["22:00-06:30"].
        battery: Percent of charge below which a device takes no part, as another program writes it
            to the file `battery` in its folder; 0: never.
        sync: True if written data must survive a power failure. It survives a killed process in
            any case.
        lease: Seconds of silence after which a link is dead.
        multicast: True to find neighbours on the local network.
        insecure: True to do without certificates, on a test bench.

    Raises:
        InputError: If a setting is out of range.

    Example:
        >>> Fleet(slot=2.0).lease
        1.0
    """

    pace: Literal["slots", "contacts"] = "slots"
    slot: float = 5.0
    patience: float = 5.0
    timeout: float = 5.0
    wire: Literal["float32", "bfloat16", "float64"] = "float32"
    bound: float = 1e6
    guard: float = 10.0
    join: Literal["neighbour", "own"] = "neighbour"
    history: float = 64.0
    model_every: int = 10
    budget: float = 0.0
    quiet: tuple[str, ...] = ()
    battery: float = 0.0
    sync: bool = True
    lease: float = 1.0
    multicast: bool = True
    insecure: bool = False

    def __post_init__(self) -> None:
        checks.one_of("pace", self.pace, ("slots", "contacts"))
        checks.number("patience", self.patience, least=0, most=86_400, noun="seconds")
        checks.number("timeout", self.timeout, least=0.1, most=86_400, noun="seconds")
        checks.number("slot", self.slot, least=0.1, most=86_400, noun="seconds")
        checks.one_of("wire", self.wire, ("float32", "bfloat16", "float64"))
        checks.positive("bound", self.bound)
        checks.not_negative("guard", self.guard, "lengths of the own vector, or 0")
        checks.one_of("join", self.join, ("neighbour", "own"))
        checks.not_negative("history", self.history, "megabytes")
        checks.not_negative("budget", self.budget, "megabytes per hour")
        object.__setattr__(self, "quiet", tuple(self.quiet))
        for hours in self.quiet:
            minutes_of(hours)
        checks.number("battery", self.battery, least=0, most=100, noun="percent")
        checks.whole("model_every", self.model_every, 0, noun="a whole number of rounds")
        checks.number("lease", self.lease, least=0.2, most=60, noun="seconds")


@dataclass(frozen=True)
class Device:
    """The settings of one device, from its file.

    Args:
        run: The run, 32 hexadecimal digits.
        device: Number of the device.
        names: The name in the certificate of each device, by number.
        start: When round 0 begins, such as "2030-01-31T12:00:00Z".
        folder: The device's folder, beside its file: certificate, samples and results.
        study: The spec, beside the device's file.
        classes: Number of classes of the fleet's data; None if the targets are not labels.
        targets: What the targets of the fleet's data are, as `Data.targets`; "": not known.
        shape: Shape of a sample of the fleet's data.
        host: Where others reach the device, as host:port; "": they find it by multicast.
        listen: Endpoints host:port on which to listen.
        connect: Endpoints to dial.
        interface: Network interface for multicast; "auto": all.
        clock: Seconds added to the device's clock.
        step_seconds: How long the device waits before every round, to rehearse a slower one.
        metrics: Where metrics for Prometheus are served to this machine, as "127.0.0.1:9464" or
            "unix:/run/gossamer/n3.sock"; "": nowhere.
        replaces: Digests of the earlier studies of the fleet, from which the device carries its
            model over (see `fleet upgrade`).
        fleet: The settings that all devices share.

    Raises:
        InputError: If a setting is out of range.
    """

    run: str
    device: int
    names: tuple[str, ...]
    start: str
    folder: Path
    study: Path = Path(STUDY)
    classes: int | None = None
    targets: str = ""
    shape: tuple[int, ...] = ()
    host: str = ""
    listen: tuple[str, ...] = ("0.0.0.0:7447",)
    connect: tuple[str, ...] = ()
    interface: str = "auto"
    clock: float = 0.0
    step_seconds: float = 0.0
    metrics: str = ""
    replaces: tuple[str, ...] = ()
    fleet: Fleet = field(default_factory=Fleet)

    def __post_init__(self) -> None:
        if not _RUN.fullmatch(self.run):
            raise InputError("run", self.run, "32 hexadecimal digits")
        checks.whole("device", self.device, 0, len(self.names) - 1)
        self.start_time()
        checks.number("clock", self.clock, noun="a number of seconds")
        checks.number("step_seconds", self.step_seconds, least=0, most=86_400, noun="seconds")

    def start_time(self) -> float:
        """Return when round 0 begins, in seconds since 1970.

        Raises:
            InputError: If `start` is not a time with its zone.
        """
        with suppress(ValueError):
            when = datetime.fromisoformat(self.start)
            if when.tzinfo is not None:
                return when.timestamp()
        raise InputError(
            "start", self.start, 'a time with its zone, such as "2030-01-31T12:00:00Z"'
        )

    @property
    def name(self) -> str:
        """Name of the device in its certificate."""
        return self.names[self.device]


def read_fleet(table: spec.Table, before: Fleet | None = None) -> Fleet:
    """Return the [fleet] table of a spec.

    Args:
        table: The tables of a spec.
        before: The values of missing keys; None: the defaults.

    Raises:
        InputError: If a key is unknown or a value is out of range.
    """
    given = table.get("fleet", {})
    if before is not None:
        given = {**dataclasses.asdict(before), "quiet": list(before.quiet), **given}
    made: Fleet = spec.build_dataclass(Fleet, given, "fleet")
    return made


def read_device(path: Path) -> Device:
    """Return the settings of a device from its file.

    Args:
        path: The file, such as n3.toml.

    Raises:
        DataError: If the file is missing or is not the file of a device.
        InputError: If a key is unknown or a value is out of range.
    """
    if not path.exists():
        raise DataError(f"there is no device file {path}: `gossamer fleet init` makes them")
    table = spec.read(path)
    if "names" not in table:
        raise DataError(
            f"{path} is not the file of a device: `gossamer fleet init` makes them, one for each"
        )
    spec.check_keys(table, [f.name for f in dataclasses.fields(Device)], "")
    plain = {key: value for key, value in table.items() if key != "fleet"}
    device: Device = spec.build_dataclass(Device, plain, "device")
    return replace(device, fleet=read_fleet(table), study=path.parent / device.study)


def read_devices(folder: Path) -> list[Device]:
    """Return the settings of all devices of a fleet, by number.

    Args:
        folder: The folder of the fleet.

    Raises:
        DataError: If there is no device.
    """
    files = sorted(folder.glob(_DEVICE_FILES), key=lambda path: (len(path.name), path.name))
    if not files:
        raise DataError(f"{folder} has no fleet: `gossamer fleet init` makes one")
    return [read_device(path) for path in files]


def write_device(path: Path, device: Device) -> None:
    """Write the file of a device. Its folder and study are named relative to the file.

    Args:
        path: The file.
        device: The settings.
    """
    beside = replace(device, folder=Path(device.folder.name), study=Path(device.study.name))
    table: dict[str, Any] = {}
    for key, value in dataclasses.asdict(beside).items():
        if value is not None:
            table[key] = str(value) if isinstance(value, Path) else value
    comment = (
        f"# {device.name}: `gossamer node {path.name}` runs it,"
        f" with {beside.folder}/ and {beside.study} beside this file.\n"
    )
    write_atomically(path, (comment + tomli_w.dumps(table)).encode())
