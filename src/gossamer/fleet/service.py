"""Run one device: connect its node to a real network, and publish its status."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gossamer._core.versions import version
from gossamer.engines import Plan
from gossamer.errors import DataError, GossamerError, InputError, MissingExtra, Unavailable
from gossamer.fleet import files, keys, members, metrics, node, samples
from gossamer.fleet.carry_over import CarryOver
from gossamer.fleet.identity import study_digest
from gossamer.fleet.methods import network_on_devices
from gossamer.fleet.notices import Notices
from gossamer.fleet.pace import END_SECONDS
from gossamer.fleet.rest import Rest
from gossamer.fleet.settings import Device
from gossamer.fleet.transport.configuration import STATUS_BYTES, LinkSettings
from gossamer.fleet.watch import ClockWatch, note_certificate
from gossamer.study import spec
from gossamer.study.study import Study
from gossamer.tasks import Task, Worker
from gossamer.tasks.splits import Split

if TYPE_CHECKING:
    from gossamer.fleet.transport.reload import ReloadedZenoh
    from gossamer.tasks.data import Data

# Neighbours in a published status that would be too large with all.
_MAX_NEIGHBOURS = 150
_LAST_STATUS_SECONDS = 0.2  # time for the last status to leave before the links are closed
# Period of publishing an unchanged status, for observers that come later.
_REPEAT_SECONDS = 2.0


def run_device(
    device: Device,
    stopped: threading.Event,
    started: Callable[[], float] | None = None,
    on_status: Callable[[dict[str, Any]], None] = lambda status: None,
    study: Study | None = None,
    *,
    allow_code: bool = False,
    notices: Notices | None = None,
    on_event: Callable[[str], None] = lambda sentence: None,
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
        notices: What the owner of the fleet should look at.
        on_event: Called with a sentence about what the operator should know, such as certificates
            that were read again.

    Returns:
        True if the rounds are done.

    Raises:
        MissingExtra: If zenoh is not installed.
        DataError: If samples or certificates are missing or wrong, or the last round is over.
        Unavailable: If the last round was over less than a day ago: the clock may be wrong.
        Diverged: If the model is no longer finite.

    Example:
        run_device(read_device(Path("n3.toml")), threading.Event(), study=study)
    """
    try:
        from gossamer.fleet.transport.reload import ReloadedZenoh
    except ImportError:
        raise MissingExtra("peer", "the runtime for devices") from None
    notices = notices or Notices()
    device = members.with_members(device, members.read_members(device))
    study = study or read_study(device, allow_code=allow_code)
    plan = plan_of(device, study)
    worker = node.make_worker(plan, device.device)
    # The worker has the samples. Drop this copy, for devices with little memory.
    plan = replace(plan, task=_without_samples(plan.task))
    if started is None and device.fleet.pace == "slots":
        _check_not_over(device, plan.rounds)
    files.make_private(device.folder)
    digest = study_digest(plan, worker.start(), device.fleet)
    carry_over = CarryOver(device.folder, plan, worker, digest, device.replaces, device.fleet.sync)
    if carried := carry_over.run():
        on_event(carried)
    clock_watch = ClockWatch(notices)
    new_samples = _NewSamples(device, study, plan, on_event, worker.samples)
    newest: dict[str, Any] = {}  # the newest status
    fleet = device.fleet
    rest = Rest(device.folder, fleet.budget, fleet.quiet, fleet.battery)
    links = _Links(device, plan.task.learner.parameters)

    def watch() -> list[dict[str, Any]]:
        clock_watch.look()
        transport.note_problems()
        if not fleet.insecure:
            note_certificate(device.folder, notices)
        return notices.entries()

    with (
        closing(
            ReloadedZenoh(device.device, links.settings, links.files(), notices, on_event)
        ) as transport,
        closing(_StatusPublisher(transport, watch)) as publisher,
        _serving(device, newest, new_samples),
    ):
        resting = False

        def publish(status: dict[str, Any]) -> None:
            nonlocal resting
            on_status(status)
            publisher.publish(status)
            newest.update(status)
            # Without links a device that rests costs its neighbours no time, and itself no power.
            if status["doing"] == "resting" and not resting:
                resting = True
                time.sleep(_LAST_STATUS_SECONDS)
                transport.set_linked(False)
            elif status["doing"] == "running" and resting:
                resting = False
                transport.set_linked(True)

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
            notices=notices,
            new_worker=new_samples,
            why_rest=rest.why,
            step_seconds=device.step_seconds,
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
    task = _own_task(device, study, samples.read_samples(device))
    devices = len(device.names)
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


def _own_task(device: Device, study: Study, data: Data) -> Task:
    """Return the task of one device: all samples belong to it."""
    devices = len(device.names)
    offsets = np.where(np.arange(devices + 1) > device.device, data.samples, 0)
    return Task(data, Split(np.arange(data.samples), offsets), study.model, study.batch)


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


class _Links:
    """The settings of a device's links, from files that may change while it runs.

    Args:
        device: Settings of the device.
        parameters: Number of parameters of the model.
    """

    def __init__(self, device: Device, parameters: int) -> None:
        self._device = device
        self._largest = max(1 << 16, 8 * parameters + 4096)
        self._version = 0  # version of the list of members in use

    def files(self) -> list[Path]:
        """Return the files that the settings are read from."""
        found = [members.members_file(self._device)]
        if not self._device.fleet.insecure:
            for name in (keys.AUTHORITY_CERTIFICATE, keys.CERTIFICATE, keys.KEY):
                found.append(self._device.folder / name)
        return found

    def settings(self) -> LinkSettings:
        """Return the settings as the files are now.

        Raises:
            DataError: If a file cannot be used, or the device was removed from its fleet.
        """
        device = self._device
        fleet = device.fleet
        listed = members.read_members(device)
        if listed.version < self._version:
            raise DataError(
                f"{members.members_file(device)} has version {listed.version}, older than"
                f" {self._version}, which is in use"
            )
        if device.name in listed.refused:
            raise DataError(f"{device.name} was removed from this fleet; nobody links to it")
        if not fleet.insecure and (problem := keys.check_folder(device.folder, device.name)):
            raise DataError(problem)
        self._version = listed.version
        return LinkSettings(
            run=device.run,
            names=listed.names,
            certificates=None if fleet.insecure else device.folder,
            insecure=fleet.insecure,
            listen=device.listen,
            connect=device.connect,
            multicast=fleet.multicast,
            interface=device.interface,
            lease=fleet.lease,
            largest=self._largest,
            refused=listed.refused,
        )


def _check_not_over(device: Device, rounds: int) -> None:
    """Refuse a device that starts for the first time after the last round."""
    ends = device.start_time() + rounds * device.fleet.slot
    over = time.time() + device.clock - ends
    if over < 0 or (device.folder / files.LOG).exists():
        return
    when = f"{datetime.fromtimestamp(ends, UTC):%Y-%m-%d %H:%M:%S} UTC"
    sentence = f"the last round of this fleet ended at {when}, and {device.name} was in none"
    if over < END_SECONDS:
        raise Unavailable(f"{sentence}: if the clock of this device is wrong, correct it")
    raise DataError(sentence)


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


@contextmanager
def _serving(device: Device, newest: dict[str, Any], new_samples: _NewSamples) -> Iterator[None]:
    """Serve metrics within a block, if the device has an address for them."""
    if not device.metrics:
        yield
        return

    def content() -> bytes:
        expiry = None
        if not device.fleet.insecure:
            with suppress(GossamerError):
                expiry = keys.expiry(device.folder).timestamp()
        facts = metrics.Facts(
            device.name, device.run, version("gossamer"), new_samples.count, expiry
        )
        return metrics.page(dict(newest), facts)

    with closing(metrics.MetricsServer(device.metrics, content)):
        yield


class _NewSamples:
    """Makes a worker of the samples when they have changed.

    Args:
        device: Settings of the device.
        study: The study.
        plan: The plan of the device, without its samples.
        on_event: Called with a sentence about what was found.
        count: Number of samples at the start.
    """

    def __init__(
        self,
        device: Device,
        study: Study,
        plan: Plan,
        on_event: Callable[[str], None],
        count: int,
    ) -> None:
        self._device = device
        self._study = study
        self._plan = plan
        self._on_event = on_event
        self._samples = samples.GrowingSamples(device)
        self.count = count

    def __call__(self) -> Worker | None:
        try:
            data = self._samples.read_if_changed()
            if data is None:
                return None
            task = _own_task(self._device, self._study, data)
            worker = node.make_worker(replace(self._plan, task=task), self._device.device)
        except GossamerError as error:
            self._on_event(f"the change of its samples is not used: {error}")
            return None
        self.count = data.samples
        self._on_event(f"its samples were read again: {data.samples:,} to train on")
        return worker


class _StatusPublisher:
    """Publish the status of a device when it changes, and every few seconds with its neighbours."""

    def __init__(self, transport: ReloadedZenoh, watch: Callable[[], list[dict[str, Any]]]) -> None:
        self._transport = transport
        self._watch = watch
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
            notices = self._watch()
            with self._lock:
                if self._status:
                    neighbours = sorted(self._transport.neighbours())
                    since = {"near": neighbours, "notices": notices, "time": time.time()}
                    self._send(self._status | since)

    def _send(self, status: dict[str, Any]) -> None:
        data = json.dumps(status).encode()
        if len(data) > STATUS_BYTES:  # hundreds of neighbours
            near = status["near"][:_MAX_NEIGHBOURS]
            met = status.get("met", [])[:_MAX_NEIGHBOURS]
            data = json.dumps(status | {"near": near, "met": met}).encode()
        self._transport.publish_status(data)
