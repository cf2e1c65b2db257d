"""Room for the shards on a cluster: how many there are, and what each of them reserves."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group

from gossamer.engines.ray.cluster import Report
from gossamer.errors import InputError

if TYPE_CHECKING:
    from gossamer.engines.plan import Plan
    from gossamer.engines.settings import Ray

_SAY_SECONDS = 5.0  # duration of a wait after which it is reported
_SLICE_SECONDS = 1.0


@dataclass(frozen=True)
class Request:
    """What the shards of a run reserve.

    Args:
        shards: Number of shards.
        cpus: CPUs of each shard, which are its torch threads.
        gpus: GPUs of each shard.
        resources: Other resources of each shard, as Ray names them.
    """

    shards: int
    cpus: int = 1
    gpus: float = 0.0
    resources: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Ray, plan: Plan) -> Request:
        """Return what the settings ask for on the cluster that is connected.

        Args:
            settings: The settings of the engine.
            plan: What is run. A shard whose torch device is a GPU reserves one.
        """
        machines = _cpus_of_machines()
        shards = settings.shards or max(1, len(machines))
        cpus = settings.cpus
        if not cpus:
            cpus = 1
            if not settings.shards and machines:
                cpus = min(machines)
        gpus = _gpus(settings, plan.device)
        return cls(min(shards, plan.task.devices), cpus, gpus, settings.resources)

    @classmethod
    def of_run(cls, settings: Ray, device: str) -> Request:
        """Return what one run of a sweep asks for.

        Args:
            settings: The settings of the engine.
            device: The torch device of the run.
        """
        return cls(1, max(1, settings.cpus), _gpus(settings, device), settings.resources)

    def options(self, share: int = 1) -> dict[str, Any]:
        """Return what one shard or run reserves, as options of a Ray actor or task.

        Args:
            share: How many shards share what one of them asks for.
        """
        resources = self.bundle(share)
        cpus = resources.pop("CPU")
        gpus = resources.pop("GPU", 0.0)
        return {"num_cpus": cpus, "num_gpus": gpus, "resources": resources}

    def bundle(self, share: int = 1) -> dict[str, float]:
        """Return what one shard reserves, as Ray has it.

        Args:
            share: How many shards share what one of them asks for.
        """
        wanted = {"CPU": float(self.cpus), "GPU": float(self.gpus), **self.resources}
        amounts = {}
        for name, amount in wanted.items():
            if amount:
                part = amount / share
                # Ray accepts fractions below 1 only.
                amounts[name] = part if part <= 1 else float(int(part))
        return amounts

    def free_places(self) -> int:
        """Return for how many shards there is room now."""
        free = ray.available_resources()
        return min(int(free.get(name, 0) / amount) for name, amount in self.bundle().items())

    def places_when_idle(self) -> int:
        """Return for how many shards the cluster has room if nothing else runs on it."""
        total = ray.cluster_resources()
        return min(int(total.get(name, 0) / amount) for name, amount in self.bundle().items())

    def least_share(self) -> int | None:
        """Return how many shards have to share a place, so that all fit; None: none fits."""
        places = self.free_places()
        if places < 1:
            return None
        return -(-self.shards // places)


def _gpus(settings: Ray, device: str) -> float:
    """Return the GPUs of a process: one, unless set otherwise, if its torch device is a GPU."""
    if not settings.gpus and device.partition(":")[0] == "cuda":
        return 1.0
    return settings.gpus


def _cpus_of_machines() -> list[int]:
    cpus = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    return [count for count in cpus if count]


def reserve(request: Request, wait: float, report: Report, share: int = 1) -> Any:
    """Reserve room for the shards.

    Args:
        request: What they need.
        wait: Most seconds to wait for it.
        report: Called with a sentence if it takes long.
        share: How many shards share what one of them asks for.

    Returns:
        A Ray placement group with one bundle per shard.

    Raises:
        InputError: If there is not enough room in time.
    """
    group = placement_group([request.bundle(share)] * request.shards, strategy="SPREAD")
    began = time.monotonic()
    said = False
    while not group.wait(timeout_seconds=min(wait, _SLICE_SECONDS)):
        seconds = time.monotonic() - began
        if seconds >= wait:
            remove_placement_group(group)
            raise _no_room(request, wait)
        if seconds > _SAY_SECONDS and not said:
            said = True
            report(
                f"waiting up to {wait:g} s for room for {_processes(request)}: "
                f"{_free(request)} (engine.wait)"
            )
    return group


def _processes(request: Request) -> str:
    if request.shards == 1:
        return "one process"
    return f"{request.shards} shards"


def _free(request: Request) -> str:
    """Return what the cluster has and what of it is free, in words."""
    total = ray.cluster_resources()
    free = ray.available_resources()
    parts = []
    for name in request.bundle():
        noun = {"CPU": "CPUs", "GPU": "GPUs"}.get(name, name)
        parts.append(f"{int(total.get(name, 0))} {noun}, {int(free.get(name, 0))} of them free")
    return "the cluster has " + ", and ".join(parts)


def _no_room(request: Request, wait: float) -> InputError:
    places = request.free_places()
    each = ""
    if request.bundle() != {"CPU": 1.0}:
        needs = ", ".join(f"{amount:g} {name}" for name, amount in request.bundle().items())
        each = f" (each needs {needs})"
    accepted = (
        f"at most {max(1, places)} now: {_free(request)}, "
        f"and no more became free in {wait:g} s{each}"
    )
    return InputError("engine.shards", request.shards, accepted)


def wait_for_place(request: Request, wait: float, report: Report) -> None:
    """Wait until the cluster has room for one process.

    Args:
        request: What the process needs.
        wait: Most seconds to wait.
        report: Called with a sentence if it takes long.

    Raises:
        InputError: If there is no room in time.
    """
    try:
        remove_placement_group(reserve(replace(request, shards=1), wait, report))
    except InputError as error:
        needs = ", ".join(f"{amount:g} {name}" for name, amount in request.bundle().items())
        reason = error.accepted.partition(": ")[2]
        accepted = f"a cluster with room for a run ({needs}): {reason}"
        raise InputError(
            "engine.address", ray.get_runtime_context().gcs_address, accepted
        ) from None
