"""Measure where the time of a round goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gossamer.engines import Plan, Simulator
from gossamer.engines.mixing import StackedMix
from gossamer.network import Network
from gossamer.network.base import Links
from gossamer.study.bench.result import PARTS


class PartTimer:
    """Assign every moment to the part of a round that was entered last."""

    def __init__(self) -> None:
        self._entered = [PARTS[-1]]
        self.restart()

    def restart(self) -> None:
        """Start again from zero."""
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._since = time.perf_counter()

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each part since the last restart."""
        self._switch()
        return dict(self._seconds)

    def timed(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does what `call` does, with its time assigned to a part.

        Args:
            part: One of `PARTS`.
            call: The function.
        """

        def timed_call(*args: Any, **options: Any) -> Any:
            self._switch()
            self._entered.append(part)
            try:
                return call(*args, **options)
            finally:
                self._switch()
                self._entered.pop()

        return timed_call

    def _switch(self) -> None:
        now = time.perf_counter()
        self._seconds[self._entered[-1]] += now - self._since
        self._since = now


class TimedSimulator(Simulator):
    """A simulator that measures the parts of its rounds. It runs the same rounds.

    Args:
        plan: What to run.
    """

    def __init__(self, plan: Plan) -> None:
        self.timer = PartTimer()
        links = self.timer.timed("links and weights", plan.network.links)
        super().__init__(replace(plan, network=_TimedNetwork(plan.network, links)))
        self._make_mix = self.timer.timed("links and weights", super().make_mix)
        worker: Any = self.worker
        worker.gradient = self.timer.timed("batches and gradient", worker.gradient)

    def make_mix(self, *args: Any) -> StackedMix:
        mix: Any = self._make_mix(*args)
        mix.mean = self.timer.timed("mixing", mix.mean)
        return mix  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _TimedNetwork(Network):
    """A network whose links are computed by a given function."""

    inner: Network
    compute_links: Callable[[int], Links]

    @property
    def devices(self) -> int:  # type: ignore[override]
        return self.inner.devices

    @property
    def period(self) -> int | None:
        return self.inner.period

    @property
    def rounds(self) -> int | None:
        return self.inner.rounds

    def links(self, t: int) -> Links:
        return self.compute_links(t)
