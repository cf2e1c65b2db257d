"""Where a study runs, as data: the section `[engine]` of a spec."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Protocol

from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.engines.events import start_events
from gossamer.engines.observer import Observer
from gossamer.engines.plan import Engine, Plan, Snapshot
from gossamer.engines.simulate import Simulator
from gossamer.errors import InputError, MissingExtra


class EngineSpec(Protocol):
    """The settings of an engine, and how to start one from them."""

    def start(
        self, plan: Plan, snapshot: Snapshot | None = None, observer: Observer | None = None
    ) -> Engine:
        """Start an engine.

        Args:
            plan: What to run.
            snapshot: The state to resume from. None: start at round 0.
            observer: Receives the messages of the engine.

        Returns:
            An engine that has run no further round yet.

        Raises:
            InputError: If the plan cannot be run here.
            MissingExtra: If a package is not installed.
        """

    def cluster(self) -> Ray | None:
        """Return the settings of the cluster that the engine runs on; None: it has none.

        Several runs then take place on the cluster too, instead of in processes of this machine.
        """
        return None


@register("engine", "simulator")
@dataclass(frozen=True)
class Simulation(EngineSpec):
    """The simulator, in this process.

    Example:
        >>> from gossamer import Study
        >>> Simulation().start(Study(rounds=5).plan()).round
        0
    """

    def start(
        self, plan: Plan, snapshot: Snapshot | None = None, observer: Observer | None = None
    ) -> Engine:
        if plan.events is not None:
            return plan.events.start(plan, snapshot, observer)
        return Simulator(plan, snapshot)


@register("engine", "events")
@dataclass(frozen=True)
class Events(EngineSpec):
    """The engine without rounds, in this process: devices compute at their own pace and meet.

    The study needs a `timing`. Its rounds are rounds of the network, that is, time. Unlike other
    engines it changes the results, so that it is a part of the study: `Study(events=Events())`.

    Args:
        seconds_per_round: How long the links of a round of the network last. 0: as long as the
            network says (a trace, mobility), else one second.
        patience: How long a device that is ready waits for a neighbour, in steps of its own. 0: it
            meets only those that wait or become ready at that moment.
        patience_seconds: The same in seconds, for fast and slow devices alike, as `patience` is in
            the section `[fleet]`. 0: `patience` counts.

    Raises:
        InputError: If a value is not accepted.

    Example:
        >>> from gossamer import Study, Timing
        >>> study = Study(timing=Timing(compute=0.1, rate=1e6), rounds=5)
        >>> Events(seconds_per_round=2.0).start(study.plan()).round
        0
    """

    seconds_per_round: float = 0.0
    patience: float = 1.0
    patience_seconds: float = 0.0

    def __post_init__(self) -> None:
        checks.not_negative("seconds_per_round", self.seconds_per_round, "a number of seconds")
        checks.not_negative("patience", self.patience, "a number of steps")
        checks.not_negative("patience_seconds", self.patience_seconds, "a number of seconds")

    def start(
        self, plan: Plan, snapshot: Snapshot | None = None, observer: Observer | None = None
    ) -> Engine:
        seconds = self.seconds_per_round or plan.network.round_seconds or 1.0
        return start_events(
            plan, seconds, self.patience, snapshot, patience_seconds=self.patience_seconds
        )


@register("engine", "ray")
@dataclass(frozen=True)
class Ray(EngineSpec):
    """A Ray cluster, with the devices in shards that run in parallel.

    Args:
        shards: Number of shards, one process each. 0: one per machine of the cluster.
        address: "auto" or "host:port" of a running cluster. "": start one on this machine for the
            run.
        wait: Most seconds to wait for free CPUs, and for a sign of life from a shard.
        checkpoint: Seconds between two checkpoints, from which lost shards are restored.
        cpus: CPUs per shard, which are its torch threads, and per run of a comparison or search. 0:
            all of a machine if `shards` is 0, else 1.
        gpus: GPUs per shard and per run. 0: one if the torch device is "cuda", else none.
        resources: Other resources per shard and per run, by their names in Ray.
        runtime_env: What Ray prepares for the shards on every machine: packages, environment
            variables, a working directory.
        exchange_dtype: Type in which shards send rows of models to each other. "": as they are;
            "bfloat16": with half the bytes (of float32), rounded to eight bits. The results then
            depend on the number of shards.

    Raises:
        InputError: If a value is not accepted.

    Example:
        >>> import gossamer as gs
        >>> gs.run(gs.Study(), engine=Ray(shards=4))  # doctest: +SKIP
    """

    shards: int = 0
    address: str = ""
    wait: float = 60.0
    checkpoint: float = 30.0
    cpus: int = 0
    gpus: float = 0.0
    resources: dict[str, float] = field(default_factory=dict, hash=False)
    runtime_env: dict[str, Any] = field(default_factory=dict, hash=False)
    exchange_dtype: str = ""

    def __post_init__(self) -> None:
        checks.whole("shards", self.shards, 0, 10_000, "a number of shards (0: one per machine)")
        checks.positive("wait", self.wait, "a number of seconds")
        checks.positive("checkpoint", self.checkpoint, "a number of seconds")
        checks.whole("cpus", self.cpus, 0, 10_000)
        checks.not_negative("gpus", self.gpus, "a number of GPUs")
        for name, amount in self.resources.items():
            checks.positive(f"resources.{name}", amount, "an amount")
        checks.one_of("exchange_dtype", self.exchange_dtype, ("", "bfloat16"))

    def start(
        self, plan: Plan, snapshot: Snapshot | None = None, observer: Observer | None = None
    ) -> Engine:
        if plan.events is not None:
            accepted = '"simulator": a run without common rounds takes place in one process'
            raise InputError("engine.kind", "ray", accepted)
        check_ray()
        from gossamer.engines.ray.engine import RayEngine

        return RayEngine(plan, self, snapshot, observer)

    def cluster(self) -> Ray:
        return self


def check_ray() -> None:
    """Raise MissingExtra if Ray is not installed."""
    if find_spec("ray") is None:
        raise MissingExtra("ray", "the Ray engine")
