"""A study on real devices: what each of them needs, its life, and all that they bring home as one run folder.

study.toml                    what is learned, and how
n3.toml  n3/                  goes to device 3: its file; its certificate and its samples, and what it keeps later
observer/                     the certificate of whoever watches
authority/                    signs certificates; it goes nowhere
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tomli_w
import torch

from gossamer._core.files import write_atomically
from gossamer.engines import Plan, Record
from gossamer.errors import DataError, InputError, MissingExtra
from gossamer.fleet import keys, node, settings
from gossamer.fleet.access import STATUS_BYTES
from gossamer.fleet.mix import check_runs_on_devices
from gossamer.fleet.settings import Device, Fleet
from gossamer.network import Full, Links, Network, save
from gossamer.network import Sequence as LinkFile
from gossamer.results.folder import RunFolder, columns
from gossamer.results.statistics import summarise
from gossamer.study import spec
from gossamer.study.study import Study
from gossamer.study.versions import versions
from gossamer.tasks import Arrays, Task
from gossamer.tasks.splits import Split
from gossamer.tasks.task import test_subset

if TYPE_CHECKING:
    from gossamer.fleet.zenoh import Zenoh

STUDY, SAMPLES, AUTHORITY, OBSERVER, LINKS = (
    "study.toml",
    "data.safetensors",
    "authority",
    "observer",
    "links.parquet",
)
_PORT = 7447
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(?::([0-9]{1,5}))?")
_YEARS = 3650.0  # days for which an authority signs
_LISTED = 150  # neighbours, where there is no room for all
_AGAIN = 2.0  # seconds after which a device says again how it is: for an observer who comes later


# -- before: a folder for the fleet ------------------------------------------------------------------------------------------


def init(
    study: Study,
    fleet: Fleet,
    folder: Path,
    start: datetime,
    hosts: Sequence[str] = (),
    days: float = 365,
    samples: bool = True,
) -> list[Path]:
    """Make a fleet's folder; the files of its devices.

    `hosts`: where each device is reached, if they do not find each other by multicast. Without `samples` the devices have
    theirs already, or get them otherwise (see `SAMPLES`), in the shape and with the classes of the study's data.

        init(study, Fleet(slot=10), Path("fleet"), datetime(2030, 1, 31, 12, tzinfo=UTC))
    """
    devices = study.network.devices
    check_runs_on_devices(study.algorithm)
    if devices < 2:
        raise InputError("devices", devices, "at least 2")
    ends = endpoints(hosts)
    if hosts and len(set(ends)) != devices:
        raise InputError(
            "hosts", ",".join(hosts), f"{devices} different host[:port], one for each device"
        )
    if folder.exists() and any(folder.iterdir()):
        raise DataError(f"{folder} is there already and not empty: give another name by --out")
    plan = study.plan()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return _make(study, plan, fleet, folder, start, ends, days, samples)
    except BaseException:
        shutil.rmtree(folder)  # it was empty, or not there
        raise


def _make(
    study: Study,
    plan: Plan,
    fleet: Fleet,
    folder: Path,
    start: datetime,
    ends: list[str],
    days: float,
    samples: bool,
) -> list[Path]:
    devices = study.network.devices
    names, run = tuple(f"n{i}" for i in range(devices)), secrets.token_hex(16)
    write_atomically(folder / STUDY, spec.dumps(replace(study, network=Full(devices))).encode())
    if not fleet.insecure:
        keys.make_authority(
            folder / AUTHORITY, study.name, max(days, _YEARS)
        )  # so that certificates can be renewed
        keys.make_certificate(folder / OBSERVER, folder / AUTHORITY, OBSERVER, days)
    files = []
    for i, name in enumerate(names):
        (folder / name).mkdir()
        host, _, port = ends[i].rpartition(":") if ends else ("", "", str(_PORT))
        if not fleet.insecure:
            keys.make_certificate(
                folder / name, folder / AUTHORITY, name, days, [host.strip("[]")] if host else []
            )
        if samples:
            _write_samples(plan, i, folder / name / SAMPLES)
        device = Device(
            run,
            i,
            names,
            start.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            Path(name),
            classes=plan.task.data.classes,
            shape=plan.task.data.shape,
            listen=(f"{'[::]' if host.startswith('[') else '0.0.0.0'}:{port}",),
            connect=tuple(ends[:i]),  # of two devices one dials
            fleet=replace(fleet, multicast=fleet.multicast and not ends),
        )
        files.append(folder / f"{name}.toml")
        write_device(files[-1], device)
    return files


def endpoints(hosts: Sequence[str], field: str = "hosts") -> list[str]:
    """Hosts as host:port.

    >>> endpoints(["10.0.0.2", "robot-3.local:7001", "[fe80::2]"])
    ['10.0.0.2:7447', 'robot-3.local:7001', '[fe80::2]:7447']
    """
    found = [_HOST.fullmatch(host) for host in hosts]
    for host, match in zip(hosts, found, strict=True):
        if not match:
            raise InputError(
                field, host, "host or host:port, such as 10.0.0.2:7447 or [fe80::2]:7447"
            )
    return [f"{match[1]}:{match[2] or _PORT}" for match in found if match]


def write_device(path: Path, device: Device) -> None:
    """Write a device's file."""
    table = {
        key: str(value) if isinstance(value, Path) else value
        for key, value in asdict(device).items()
        if value is not None
    }
    about = f"# {device.name}: `gossamer node {path.name}` runs it, with {device.folder}/ and {device.study} beside this file.\n"
    write_atomically(path, (about + tomli_w.dumps(table)).encode())


def read_device(path: Path) -> Device:
    """A device from its file."""
    if not path.exists():
        raise DataError(f"there is no device's file {path}: `gossamer fleet init` makes them")
    table = spec.read(path)
    if "names" not in table:
        raise DataError(
            f"{path} is not the file of a device: `gossamer fleet init` makes them, one for each"
        )
    device = settings.read_device(table)
    return replace(device, study=path.parent / device.study)


def relative(device: Device, **changes: Any) -> Device:
    """A device as it stands in its file, whose folder and study are beside it."""
    return replace(
        device, folder=Path(device.folder.name), study=Path(device.study.name), **changes
    )


def _write_samples(plan: Plan, device: int, path: Path) -> None:
    """What a device trains on, in the order of its split, and what it is tested on."""
    from safetensors.torch import save as to_bytes

    data, own = plan.task.data, torch.from_numpy(plan.task.split.of(device))
    test = test_subset(len(data.x_test), plan.measure.test)
    tensors = {
        "x": data.x[own],
        "y": data.y[own],
        "x_test": data.x_test[test],
        "y_test": data.y_test[test],
    }
    write_atomically(path, to_bytes({name: x.contiguous() for name, x in tensors.items()}))


# -- on a device -------------------------------------------------------------------------------------------------------------


def plan_of(device: Device, study: Study | None = None) -> Plan:
    """What a device does: the study's method on its own samples."""
    study = study or _study_of(device)
    own = next(
        (path for path in (device.folder / SAMPLES, device.folder / "data.npz") if path.exists()),
        None,
    )
    if own is None:
        raise DataError(
            f"{device.folder / SAMPLES} is missing: put the device's own x, y, x_test and y_test there"
        )
    data = Arrays(own).load()
    if device.shape and data.shape != device.shape:
        raise DataError(
            f"{own} has samples of shape {data.shape}; those of the fleet have {device.shape}"
        )
    if (data.classes is None) != (device.classes is None):
        has, want = (
            ("labels", "floating targets")
            if device.classes is None
            else ("floating targets", "labels")
        )
        raise DataError(f"{own} has {has} as y; the fleet has {want}")
    if data.classes is not None and device.classes is not None:
        if data.classes > device.classes:
            raise DataError(
                f"{own} has labels up to {data.classes - 1}; those of the fleet are 0 to {device.classes - 1}"
            )
        data = replace(data, classes=device.classes)
    devices = len(device.names)
    offsets = np.where(np.arange(devices + 1) > device.device, data.samples, 0)
    task = Task(data, Split(np.arange(data.samples), offsets), study.model, study.batch)
    measure = replace(study.measure, test=0)  # what is here is what is wanted
    return Plan(
        task,
        Full(devices),
        study.algorithm,
        study.rounds,
        study.seed,
        measure,
        study.dtype,
        "cpu",
        study.threads or 1,
    )


def _study_of(device: Device) -> Study:
    if not device.study.exists():
        raise DataError(f"{device.study} is missing: every device has it from the fleet's folder")
    study, *more = spec.studies(spec.read(device.study))
    if more:
        raise InputError("algorithm", f"{1 + len(more)} of them", "one [algorithm]")
    return study


def live(
    device: Device,
    stopped: threading.Event,
    started: Callable[[], float] | None = None,
    told: Callable[[dict[str, Any]], None] = lambda status: None,
    study: Study | None = None,
) -> bool:
    """Be a device, until the rounds are done or it is to stop; whether they are done.

    `started` is asked, once the device is ready, when round 0 begins; else its file says so. `study` takes the place of the
    spec beside that file, where it has parts that were made in Python: a model of one's own.

        live(read_device(Path("n3.toml")), threading.Event(), study=study)
    """
    try:
        from gossamer.fleet.zenoh import Settings, Zenoh
    except ImportError:
        raise MissingExtra("peer", "the runtime for devices") from None
    plan, fleet = plan_of(device, study), device.fleet
    worker = node.worker_of(plan, device.device)
    plan = replace(
        plan, task=_forgotten(plan.task)
    )  # the worker has the samples: once is enough for a small device
    settings = Settings(
        run=device.run,
        names=device.names,
        certificates=None if fleet.insecure else device.folder,
        insecure=fleet.insecure,
        listen=device.listen,
        connect=device.connect,
        multicast=fleet.multicast,
        interface=device.interface,
        lease=fleet.lease,
        largest=max(1 << 16, 8 * plan.task.learner.parameters + 4096),
    )
    ends = device.started() + plan.rounds * fleet.slot
    if (
        started is None
        and time.time() + device.clock >= ends
        and not (device.folder / node.LOG).exists()
    ):
        when = f"{datetime.fromtimestamp(ends, UTC):%Y-%m-%d %H:%M:%S} UTC"
        raise DataError(
            f"the last round of this fleet ended at {when}, and {device.name} was in none of them"
        )
    with closing(Zenoh(device.device, settings)) as transport, closing(_Voice(transport)) as voice:

        def tell(status: dict[str, Any]) -> None:
            told(status)
            voice.say(status)

        start = device.started() if started is None else started()
        run = bytes.fromhex(device.run)
        alive = node.Node(
            plan, transport, device.folder, run, fleet, start, device.clock, tell, worker
        )
        return alive.live(stopped)


def _forgotten(task: Task) -> Task:
    """A task that has lost all samples but one, which says what they are like."""
    names = ("x", "y", "x_test", "y_test")
    data = replace(task.data, **{name: getattr(task.data, name)[:1].clone() for name in names})
    return replace(
        task, data=data, split=Split(np.zeros(1, np.int64), np.minimum(task.split.offsets, 1))
    )


class _Voice:
    """What a device says to observers: its status when it changes, and every few seconds with whom it sees then."""

    def __init__(self, transport: Zenoh) -> None:
        self._transport, self._status = transport, dict[str, Any]()
        self._saying, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="gossamer-status", daemon=True)
        self._thread.start()

    def say(self, status: dict[str, Any]) -> None:
        with self._saying:
            self._status = status
            self._tell(status)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _repeat(self) -> None:
        while not self._ended.wait(_AGAIN):
            with self._saying:
                if self._status:
                    self._tell(
                        self._status
                        | {"near": sorted(self._transport.neighbours()), "time": time.time()}
                    )

    def _tell(self, status: dict[str, Any]) -> None:
        data = json.dumps(status).encode()
        if len(data) > STATUS_BYTES:  # hundreds of neighbours
            data = json.dumps(
                status | {"near": status["near"][:_LISTED], "met": status.get("met", [])[:_LISTED]}
            ).encode()
        self._transport.tell(data)


# -- afterwards: one run folder ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Collected:
    """What came home: which devices, and the run folder."""

    devices: list[int]
    missing: list[str]
    summary: dict[str, Any]
    folder: Path


@dataclass(frozen=True)
class _Met(Network):
    """The links over which devices have exchanged."""

    devices: int
    pairs: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def links(self, t: int) -> Links:
        return Links.of(self.devices, self.pairs.get(t, []))


def collect(folder: Path, out: Path, study: Study | None = None) -> Collected:
    """Gather what the devices of a fleet have kept into an ordinary run folder.

    Devices that are not there are left out. One that was away when others were measured stands as it was last. `study`: as in
    `live`.
    """
    files = sorted(folder.glob("n*.toml"), key=lambda path: (len(path.name), path.name))
    if not files:
        raise DataError(f"{folder} has no fleet: `gossamer fleet init` makes one")
    devices = [read_device(path) for path in files]
    logs = {d.device: _read_log(d.folder / node.LOG) for d in devices}
    here = [d for d in devices if logs[d.device] and (d.folder / node.MODEL).exists()]
    missing = [d.name for d in devices if d not in here]
    if not here:
        raise DataError(
            f"no device in {folder} has come to its end: copy their folders back, or wait for them"
        )
    study = study or _study_of(devices[0])
    records = _records([logs[d.device] for d in here], [d.folder for d in here], study)
    if out.exists() and any(out.iterdir()):
        raise DataError(f"{out} is there already and not empty: give another name by --out")
    run = RunFolder(out)
    out.mkdir(parents=True, exist_ok=True)
    save(_links(len(devices), logs), out / LINKS, study.rounds)
    at: Any = f"after_{study.algorithm.ends_with}"
    study = replace(
        study, network=LinkFile(out / LINKS, beyond="empty"), measure=replace(study.measure, at=at)
    )
    run.create(spec.dumps(study))
    run.write_metrics(columns(records))
    parts = [node.models(d.folder / node.MODEL) for d in here]
    run.write_models({name: torch.stack([one[name] for one in parts]) for name in parts[0]})
    statuses = [json.loads((d.folder / node.STATUS).read_bytes()) for d in here]
    summary = {
        "name": study.name,
        "method": study.algorithm.label,
        "seed": study.seed,
        "finished": True,
        "rounds": study.rounds,
        **summarise(columns(records), study.measure),
        "devices": [d.device for d in here],
        "missing": missing,
        "counts": {status["device"]: status["counts"] for status in statuses},
        "seconds": round(study.rounds * devices[0].fleet.slot, 3),
        "versions": versions(),
    }
    run.write_summary(summary)
    return Collected([d.device for d in here], missing, summary, out)


def _read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a device's log; a last one that was cut short is left out."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text(errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("round"), int):
            lines.append(line)
    return lines


def _links(devices: int, logs: dict[int, list[dict[str, Any]]]) -> _Met:
    """A link is there if both ends say so, or if one does and the other is not here to ask."""
    met: dict[int, set[tuple[int, int]]] = {}
    for i, log in logs.items():
        for line in log:
            for j in line["met"]:
                met.setdefault(line["round"] - 1, set()).add((min(i, j), max(i, j)))
    return _Met(devices, {t: sorted(pairs) for t, pairs in met.items()})


def _records(logs: list[list[dict[str, Any]]], folders: list[Path], study: Study) -> list[Record]:
    """A record for every round that somebody has measured."""
    rounds = sorted({line["round"] for log in logs for line in log if "loss" in line})
    records = []
    for t in rounds:
        last = [[line for line in log if line["round"] <= t] for log in logs]
        measured: list[dict[str, Any]] = [
            next((line for line in reversed(lines) if "loss" in line), {}) for lines in last
        ]
        accuracy, loss = (
            _filled([line.get(key, np.nan) for line in measured]) for key in ("accuracy", "loss")
        )
        sent = [(lines[-1]["messages"], lines[-1]["bytes"]) if lines else (0, 0) for lines in last]
        distance, to_power = _distances(
            [line.get("round", -1) for line in measured], folders, study.algorithm.p_at(t)
        )
        records.append(
            Record(
                t,
                accuracy,
                loss,
                distance,
                to_power,
                sum(m for m, _ in sent),
                sum(b for _, b in sent),
            )
        )
    return records


def _filled(values: list[float]) -> Any:
    """A device that has yet to join counts as those that have."""
    found = np.array(values)
    known = found[~np.isnan(found)]
    return np.where(np.isnan(found), known.mean(), found) if len(known) else found


def _distances(rounds: list[int], folders: list[Path], p: float) -> tuple[Any, Any]:
    """From the mean, and from the power mean, where every device has kept its model."""
    from gossamer.mirror import power_mean

    paths = [
        folder / node.HISTORY / f"{t:06}.safetensors"
        for t, folder in zip(rounds, folders, strict=True)
    ]
    if not all(path.exists() for path in paths):
        return (np.full(len(folders), np.nan),) * 2
    w = torch.stack(
        [torch.cat([x.flatten() for x in node.models(path).values()]) for path in paths]
    ).double()
    even = torch.full((len(w),), 1 / len(w), dtype=torch.float64)
    distance = (w - w.mean(0)).norm(dim=1).numpy()
    return distance, distance if p == 1 else (w - power_mean(w, even, p)).norm(dim=1).numpy()
