"""Write the folder of a fleet: what each device needs.

study.toml          the study, for every device
code/               the Python files that the study names, if it names any, for every device
n3.toml  n3/        for device 3: its settings; its certificate and its samples
members.json        who belongs to the fleet, once that has changed; for every device
samples.csv         whose samples each device has, if the data name their devices
observer/           the certificate of observers
authority/          signs certificates; it must not be copied to any device
"""

from __future__ import annotations

import csv
import io
import re
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import tomli_w
import torch

from gossamer._core.files import PRIVATE_FOLDER_MODE, PRIVATE_MODE, write_atomically
from gossamer.engines import Plan
from gossamer.errors import DataError, InputError
from gossamer.fleet import keys
from gossamer.fleet.code import bundle_code
from gossamer.fleet.files import SAMPLES, TABLE_FORMAT
from gossamer.fleet.methods import (
    check_has_no_stream,
    check_runs_in_meetings,
    check_runs_on_devices,
    network_on_devices,
)
from gossamer.fleet.settings import STUDY, Device, Fleet, write_device
from gossamer.study import spec
from gossamer.study.study import Study
from gossamer.tasks.own_devices import names_in_order
from gossamer.tasks.worker import test_subset

AUTHORITY = "authority"
OWNERS = "samples.csv"
OBSERVER = "observer"
_PORT = 7447
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(?::([0-9]{1,5}))?")
_AUTHORITY_DAYS = 3650.0  # lifetime of an authority, so that certificates can be renewed


def init(
    study: Study,
    fleet: Fleet,
    folder: Path,
    start: datetime,
    hosts: Sequence[str] = (),
    days: float = 365,
    samples: bool = True,
    device_keys: bool = True,
    passphrase: bytes | None = None,
) -> list[Path]:
    """Write the folder of a fleet.

    Args:
        study: The study to run.
        fleet: The settings that all devices share.
        folder: The folder to write; it must be empty or missing.
        start: When round 0 begins.
        hosts: Where each device is reached, if they do not find each other by multicast.
        days: Validity of the certificates.
        samples: False if each device has its own samples, in the shape and with the classes of the
            study's data, or gets them otherwise (see `files.SAMPLES`).
        device_keys: False if each device makes its own key (see `keys.make_request`).
        passphrase: What to encrypt the key of the authority with; None: it is not encrypted.

    Returns:
        The file of each device.

    Raises:
        InputError: If the study cannot run on devices, or the hosts do not fit.
        DataError: If the folder is not empty or cannot be written.

    Example:
        init(study, Fleet(slot=10), Path("fleet"), datetime(2030, 1, 31, 12, tzinfo=UTC))
    """
    devices = study.network.devices
    check_runs_on_devices(study.algorithm)
    check_has_no_stream(study.stream)
    if fleet.pace == "contacts":
        check_runs_in_meetings(study.algorithm, study.network, study.rounds)
    if devices < 2:
        raise InputError("devices", devices, "at least 2")
    addresses = endpoints(hosts)
    if hosts and len(set(addresses)) != devices:
        raise InputError(
            "hosts", ",".join(hosts), f"{devices} different host[:port], one for each device"
        )
    if folder.exists() and any(folder.iterdir()):
        raise DataError(f"{folder} exists and is not empty: give another name by --out")
    plan = study.plan()
    fleet = replace(fleet, multicast=fleet.multicast and not addresses)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _write_common_files(study, fleet, folder, days, passphrase)
        if samples:
            _write_owners(plan, folder / OWNERS)
        files = []
        for device in _devices(plan, fleet, start, addresses):
            files.append(folder / f"{device.name}.toml")
            (folder / device.name).mkdir(mode=PRIVATE_FOLDER_MODE)
            if device_keys and not fleet.insecure:
                _write_certificate(device, folder, days, passphrase)
            if samples:
                _write_samples(plan, device.device, folder / device.name / SAMPLES)
            if plan.task.data.table is not None:
                write_atomically(folder / device.name / TABLE_FORMAT, plan.task.data.table.write())
            write_device(files[-1], device)
        return files
    except BaseException:
        shutil.rmtree(folder)  # before, it was empty or missing
        raise


def endpoints(hosts: Sequence[str], field: str = "hosts") -> list[str]:
    """Return hosts as host:port, with the default port where none is given.

    Args:
        hosts: Each as host or host:port.
        field: Name of the field in an error.

    Raises:
        InputError: If one is neither.

    Example:
        >>> endpoints(["10.0.0.2", "robot-3.local:7001", "[fe80::2]"])
        ['10.0.0.2:7447', 'robot-3.local:7001', '[fe80::2]:7447']
    """
    found = []
    for host in hosts:
        match = _HOST.fullmatch(host)
        if not match:
            raise InputError(
                field, host, "host or host:port, such as 10.0.0.2:7447 or [fe80::2]:7447"
            )
        found.append(f"{match[1]}:{match[2] or _PORT}")
    return found


def endpoint_host(endpoint: str) -> str:
    """Return the host of an endpoint without the brackets of an IPv6 address.

    Args:
        endpoint: As host:port.
    """
    return endpoint.rpartition(":")[0].strip("[]")


def listening(endpoint: str) -> str:
    """Return where a device listens that others reach at an endpoint.

    Args:
        endpoint: As host:port.
    """
    host, _, port = endpoint.rpartition(":")
    return f"[::]:{port}" if host.startswith("[") else f"0.0.0.0:{port}"


def _write_common_files(
    study: Study, fleet: Fleet, folder: Path, days: float, passphrase: bytes | None
) -> None:
    network = network_on_devices(study.network, study.network.devices)
    table = spec.to_table(replace(study, network=network))
    bundle_code(table, folder)
    write_atomically(folder / STUDY, tomli_w.dumps(table).encode())
    if not fleet.insecure:
        authority = folder / AUTHORITY
        lasts = max(days, _AUTHORITY_DAYS)
        keys.make_authority(authority, study.name, lasts, passphrase=passphrase)
        keys.make_certificate(folder / OBSERVER, authority, OBSERVER, days, passphrase=passphrase)


def _devices(plan: Plan, fleet: Fleet, start: datetime, addresses: list[str]) -> list[Device]:
    """Return the settings of all devices of a new run."""
    run = secrets.token_hex(16)
    names = tuple(f"n{i}" for i in range(plan.network.devices))
    begins = start.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    devices = []
    for i, name in enumerate(names):
        own = addresses[i] if addresses else f"0.0.0.0:{_PORT}"
        devices.append(
            Device(
                run,
                i,
                names,
                begins,
                Path(name),
                classes=plan.task.data.classes,
                targets=plan.task.data.targets,
                shape=plan.task.data.shape,
                host=addresses[i] if addresses else "",
                listen=(listening(own),),
                connect=tuple(addresses[:i]),  # one of two devices dials the other
                fleet=fleet,
            )
        )
    return devices


def _write_certificate(device: Device, folder: Path, days: float, passphrase: bytes | None) -> None:
    """Write key and certificate of one device."""
    hosts = [endpoint_host(device.host)] if device.host else []
    keys.make_certificate(
        folder / device.name, folder / AUTHORITY, device.name, days, hosts, passphrase=passphrase
    )


def _write_owners(plan: Plan, path: Path) -> None:
    """Write whose samples each device has, if the data name their devices."""
    names = names_in_order(plan.task.data, plan.network.names)
    if not names:
        return
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["device", "samples"])
    for number, name in enumerate(names):
        rows.writerow([f"n{number}", name])
    write_atomically(path, text.getvalue().encode())


def _write_samples(plan: Plan, device: int, path: Path) -> None:
    """Write the samples that a device trains on, in the order of its split, and is tested on."""
    from safetensors.torch import save as to_bytes

    data = plan.task.data
    own = torch.from_numpy(plan.task.split.of(device))
    test = test_subset(len(data.x_test), plan.measure.test)
    tensors = {
        "x": data.x[own].contiguous(),
        "y": data.y[own].contiguous(),
        "x_test": data.x_test[test].contiguous(),
        "y_test": data.y_test[test].contiguous(),
    }
    write_atomically(path, to_bytes(tensors), mode=PRIVATE_MODE)
