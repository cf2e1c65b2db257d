"""Move a fleet to another study, on the machine that has its folder.

The devices keep their names, certificates, samples and addresses; `carry_over` says what each of
them keeps of the earlier study.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import tomli_w

from gossamer._core.files import write_atomically
from gossamer.errors import InputError
from gossamer.fleet.code import bundle_code
from gossamer.fleet.identity import study_digest
from gossamer.fleet.membership import FleetFolder
from gossamer.fleet.methods import (
    check_has_no_stream,
    check_runs_in_meetings,
    check_runs_on_devices,
    network_on_devices,
)
from gossamer.fleet.node import make_worker
from gossamer.fleet.service import read_study
from gossamer.fleet.settings import STUDY, Device, Fleet, write_device
from gossamer.network import Network
from gossamer.study import spec
from gossamer.study.study import Study


@dataclass(frozen=True)
class Upgraded:
    """What an upgrade has written.

    Args:
        names: The devices whose files are new.
        same: True if the new study has the same method and model, so that devices resume.
        common: The files and folders that every device needs, beside its own.
    """

    names: list[str]
    same: bool
    common: list[str]


def upgrade(
    folder: Path, study: Study, fleet: Fleet, start: datetime, *, allow_code: bool = False
) -> Upgraded:
    """Write another study into the folder of a fleet, and which earlier ones it replaces.

    Args:
        folder: The folder of the fleet.
        study: The new study.
        fleet: The new settings that all devices share.
        start: When round 0 begins, in slots.
        allow_code: Import and run the Python code that the earlier study names.

    Raises:
        InputError: If the study cannot run on these devices, or was theirs before.
        DataError: If the folder cannot be read or written.

    Example:
        upgrade(Path("fleet"), study, Fleet(slot=10), datetime(2030, 1, 31, 12, tzinfo=UTC))
    """
    devices = FleetFolder(folder).devices()
    last = devices[-1]
    study = replace(study, network=_network(study, len(last.names)))
    check_runs_on_devices(study.algorithm)
    check_has_no_stream(study.stream)
    if fleet.pace == "contacts":
        check_runs_in_meetings(study.algorithm, study.network, study.rounds)
    if fleet.insecure != last.fleet.insecure:
        raise InputError("fleet.insecure", fleet.insecure, f"{last.fleet.insecure}, as it was")
    plan = study.plan()
    _check_samples_fit(last, plan.task.data.shape, plan.task.data.classes, plan.task.data.targets)
    fleet = replace(fleet, multicast=last.fleet.multicast)
    digest = study_digest(plan, make_worker(plan, 0).start(), fleet)
    earlier = _earlier_digest(last, allow_code)
    if digest != earlier and digest in last.replaces:
        raise InputError(
            "study", study.name, "a study that was not theirs before; another seed makes it one"
        )
    replaces = last.replaces
    if digest != earlier:
        replaces = tuple(dict.fromkeys((*last.replaces, earlier)))
    begins = last.start
    if digest != earlier and fleet.pace == "slots":
        text = start.astimezone(UTC).isoformat(timespec="milliseconds")
        begins = text.replace("+00:00", "Z")
    table = spec.to_table(study)
    code = bundle_code(table, folder)
    # The study last: until then, another attempt finds the earlier one.
    for device in devices:
        changed = replace(device, fleet=fleet, start=begins, replaces=replaces)
        write_device(folder / f"{device.name}.toml", changed)
    write_atomically(folder / STUDY, tomli_w.dumps(table).encode())
    common = [STUDY, *(f"{name}/" for name in code)]
    return Upgraded([device.name for device in devices], digest == earlier, common)


def _network(study: Study, devices: int) -> Network:
    """Return the network of a study as devices know it."""
    network = network_on_devices(study.network, devices)
    if network.devices != devices:
        raise InputError("devices", network.devices, f"{devices}, as the fleet has")
    return network


def _earlier_digest(device: Device, allow_code: bool) -> str:
    """Return the digest of the study that is in the folder now."""
    study = read_study(device, allow_code=allow_code)
    study = replace(study, network=network_on_devices(study.network, len(device.names)))
    plan = study.plan()
    return study_digest(plan, make_worker(plan, 0).start(), device.fleet)


def _check_samples_fit(
    device: Device, shape: tuple[int, ...], classes: int | None, targets: str
) -> None:
    """Refuse data of another form than that of the samples which the devices have."""
    for field, wanted, has in (
        ("shape", shape, device.shape),
        ("classes", classes, device.classes),
        ("targets", targets, device.targets or targets),
    ):
        if wanted != has:
            raise InputError(f"data.{field}", wanted, f"{has}, which the samples of devices have")
