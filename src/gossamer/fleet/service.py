"""Run one device: connect its node to a real network, and publish its status."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gossamer.engines import Plan
from gossamer.errors import DataError, InputError, MissingExtra
from gossamer.fleet import files, node
from gossamer.fleet.methods import network_on_devices
from gossamer.fleet.settings import Device
from gossamer.fleet.transport.configuration import STATUS_BYTES, LinkSettings
from gossamer.study import spec
from gossamer.study.study import Study
from gossamer.tasks import Task, table_files
from gossamer.tasks.array_files import load_part
from gossamer.tasks.splits import Split

if TYPE_CHECKING:
    from gossamer.fleet.transport.zenoh import Zenoh
    from gossamer.tasks.data import Data

_MAX_NEIGHBOURS = 150  # listed in a published status that would be too large with all
_REPEAT_SECONDS = 2.0  # after which a status is published again, for observers that come later


def run_device(
    device: Device,
    stopped: threading.Event,
    started: Callable[[], float] | None = None,
    on_status: Callable[[dict[str, Any]], None] = lambda status: None,
    study: Study | None = None,
    *,
    allow_code: bool = False,
) -> bool:
    """Run a device until the rounds are done or it is stopped.

    Args:
        device: Settings of the device.
        stopped: Set it to stop the device at the end of its exchange.
        started: Called once the device is ready; returns when round 0 begins. By default it
            is the time in the device's settings.
        on_status: Called with the status whenever it changes.
        study: Replaces the spec beside the device's file, for a study with parts made in Python,
            such as a custom model.
        allow_code: Import and run the Python code that the spec names.

    Returns:
        True if the rounds are done.

    Raises:
        MissingExtra: If zenoh is not installed.
        DataError: If samples or certificates are missing or wrong, or the last round is over.
        Diverged: If the model is no longer finite.

    Example:
        run_device(read_device(Path("n3.toml")), threading.Event(), study=study)
    """
    try:
        from gossamer.fleet.transport.zenoh import Zenoh
    except ImportError:
        raise MissingExtra("peer", "the runtime for devices") from None
    plan = plan_of(device, study, allow_code=allow_code)
    worker = node.make_worker(plan, device.device)
    # The worker has the samples. Drop this copy, for devices with little memory.
    plan = replace(plan, task=_without_samples(plan.task))
    if started is None:
        _check_not_over(device, plan.rounds)
    settings = _link_settings(device, plan)
    with (
        closing(Zenoh(device.device, settings)) as transport,
        closing(_StatusPublisher(transport)) as publisher,
    ):

        def publish(status: dict[str, Any]) -> None:
            on_status(status)
            publisher.publish(status)

        start = device.start_time() if started is None else started()
        running = node.Node(
            plan,
            transport,
            device.folder,
            bytes.fromhex(device.run),
            device.fleet,
            start,
            device.clock,
            publish,
            worker,
        )
        return running.run(stopped)


def plan_of(device: Device, study: Study | None = None, *, allow_code: bool = False) -> Plan:
    """Return the plan of one device: the study's method on the device's own samples.

    Args:
        device: Settings of the device.
        study: Replaces the spec beside the device's file.
        allow_code: Import and run the Python code that the spec names.

    Raises:
        DataError: If samples are missing or do not fit those of the fleet.
    """
    study = study or read_study(device, allow_code=allow_code)
    data = _own_data(device)
    devices = len(device.names)
    # All samples belong to this device.
    offsets = np.where(np.arange(devices + 1) > device.device, data.samples, 0)
    task = Task(data, Split(np.arange(data.samples), offsets), study.model, study.batch)
    return Plan(
        task,
        network_on_devices(study.network, devices),
        study.algorithm,
        study.rounds,
        study.seed,
        replace(study.measure, test=0),  # the test samples here are those wanted
        study.dtype,
        "cpu",
        study.threads or 1,
    )


def read_study(device: Device, *, allow_code: bool = False) -> Study:
    """Return the study from the spec beside a device's file.

    Args:
        device: Settings of the device.
        allow_code: Import and run the Python code that the spec names.

    Raises:
        DataError: If the spec is missing.
        SpecError: If it names code that is not allowed.
        InputError: If it has several algorithms.
    """
    if not device.study.exists():
        raise DataError(f"{device.study} is missing: copy it from the folder of the fleet")
    study, *more = spec.studies(spec.read(device.study), allow_code=allow_code)
    if more:
        raise InputError("algorithm", f"{1 + len(more)} of them", "one [algorithm]")
    return study


def _own_data(device: Device) -> Data:
    """Return the samples of a device, if they fit those of the fleet."""
    path = _samples_file(device.folder)
    data = load_part(path)
    if device.targets == "values" and data.targets == "multi-label":
        # The values of this device happen to be 0 and 1.
        data = replace(data, y=data.y.float(), y_test=data.y_test.float())
    if device.shape and data.shape != device.shape:
        raise DataError(
            f"{path} has samples of shape {data.shape}; those of the fleet have {device.shape}"
        )
    if device.classes is None:
        if data.classes is not None:
            raise DataError(f"{path} has labels as y; the fleet has other targets")
        if device.targets and data.targets != device.targets:
            raise DataError(f"{path} has {data.targets} as y; the fleet has {device.targets}")
        return data
    if data.classes is None:
        raise DataError(f"{path} has {data.targets} as y; the fleet has labels")
    if data.classes > device.classes:
        raise DataError(
            f"{path} has labels up to {data.classes - 1};"
            f" those of the fleet are 0 to {device.classes - 1}"
        )
    return replace(data, classes=device.classes)


def _samples_file(folder: Path) -> Path:
    for name in (files.SAMPLES, files.SAMPLES_NUMPY):
        if (folder / name).exists():
            return folder / name
    for ending in table_files.ENDINGS:
        if (folder / f"data{ending}").exists():
            raise DataError(
                f"{folder / f'data{ending}'} is a table, and a device reads arrays: the numbers of "
                "labels and the scale of inputs are those of all devices; `gossamer fleet init` "
                f"writes {files.SAMPLES} from the tables of all devices"
            )
    raise DataError(
        f"{folder / files.SAMPLES} is missing: put the device's own x, y, x_test and y_test there"
    )


def _link_settings(device: Device, plan: Plan) -> LinkSettings:
    fleet = device.fleet
    return LinkSettings(
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


def _check_not_over(device: Device, rounds: int) -> None:
    """Refuse a device that starts for the first time after the last round."""
    ends = device.start_time() + rounds * device.fleet.slot
    if time.time() + device.clock >= ends and not (device.folder / files.LOG).exists():
        when = f"{datetime.fromtimestamp(ends, UTC):%Y-%m-%d %H:%M:%S} UTC"
        raise DataError(
            f"the last round of this fleet ended at {when}, and {device.name} was in none of them"
        )


def _without_samples(task: Task) -> Task:
    """Return a task with a single sample of each kind, which keeps shapes and dtypes."""
    data = replace(
        task.data,
        x=task.data.x[:1].clone(),
        y=task.data.y[:1].clone(),
        x_test=task.data.x_test[:1].clone(),
        y_test=task.data.y_test[:1].clone(),
    )
    split = Split(np.zeros(1, np.int64), np.minimum(task.split.offsets, 1))
    return replace(task, data=data, split=split)


class _StatusPublisher:
    """Publish the status of a device when it changes, and every few seconds with its neighbours."""

    def __init__(self, transport: Zenoh) -> None:
        self._transport = transport
        self._status: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="gossamer-status", daemon=True)
        self._thread.start()

    def publish(self, status: dict[str, Any]) -> None:
        with self._lock:
            self._status = status
            self._send(status)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _repeat(self) -> None:
        while not self._ended.wait(_REPEAT_SECONDS):
            with self._lock:
                if self._status:
                    neighbours = sorted(self._transport.neighbours())
                    self._send(self._status | {"near": neighbours, "time": time.time()})

    def _send(self, status: dict[str, Any]) -> None:
        data = json.dumps(status).encode()
        if len(data) > STATUS_BYTES:  # hundreds of neighbours
            near = status["near"][:_MAX_NEIGHBOURS]
            met = status.get("met", [])[:_MAX_NEIGHBOURS]
            data = json.dumps(status | {"near": near, "met": met}).encode()
        self._transport.publish_status(data)
