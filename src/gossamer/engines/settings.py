"""Where a study runs, as data: `[engine]` of a spec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.engines.observer import Observer
from gossamer.engines.plan import Engine, Plan, Snapshot
from gossamer.engines.simulate import Simulator
from gossamer.errors import InputError, MissingExtra


class Where(Protocol):
    """Anything that a plan can be run on. The engine reports messages to the observer."""

    def start(
        self, plan: Plan, snapshot: Snapshot | None = None, observer: Observer | None = None
    ) -> Engine: ...


@register("engine", "simulator")
@dataclass(frozen=True)
class InProcess:
    """The simulator, in this process."""

    def start(
        self, plan: Plan, snapshot: Snapshot | None = None, observer: Observer | None = None
    ) -> Engine:
        return Simulator(plan, snapshot)


@register("engine", "ray")
@dataclass(frozen=True)
class Ray:
    """The devices in `shards` processes on a Ray cluster (0: one for each of its CPUs).

    `address` "": a cluster of this machine's own, started for the run; "auto" or "host:port": one that is there. `wait`: the
    most seconds to wait for room, and for a sign of life. `checkpoint`: after how many seconds the state is kept, from
    which the run goes on when a shard is lost.

    >>> Ray(shards=4).address
    ''
    """

    shards: int = 0
    address: str = ""
    wait: float = 60.0
    checkpoint: float = 30.0

    def __post_init__(self) -> None:
        if not 0 <= self.shards <= 10_000:
            raise InputError(
                "shards", self.shards, "a whole number from 1 to 10000, or 0 for one a CPU"
            )
        for name in ("wait", "checkpoint"):
            checks.positive(name, getattr(self, name), "a number of seconds")

    def start(
        self, plan: Plan, snapshot: Snapshot | None = None, observer: Observer | None = None
    ) -> Engine:
        check_ray()
        from gossamer.engines.ray.engine import RayEngine

        return RayEngine(plan, self, snapshot, observer)


def check_ray() -> None:
    """Say how Ray is installed, where it is not."""
    from importlib.util import find_spec

    if find_spec("ray") is None:
        raise MissingExtra("ray", "the Ray engine")
