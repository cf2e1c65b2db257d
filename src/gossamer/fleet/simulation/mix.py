"""The mix of a simulated device: the real one, with what it does told to the oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor

from gossamer.fleet.machine import StopSignal
from gossamer.fleet.mix import DeviceMix
from gossamer.fleet.pace import Pace
from gossamer.fleet.protocol.edges import Edges
from gossamer.fleet.protocol.journal import Checkpoint
from gossamer.fleet.protocol.ledger import Exchanged
from gossamer.fleet.simulation.oracle import Oracle
from gossamer.mirror import MirrorMap


@dataclass(eq=False)
class ObservedMix(DeviceMix):
    """A mix that tells the oracle what went in, what was applied, and what came out.

    Args:
        inner: The mix of the device.
        oracle: Checks it.
        before: Called before every exchange, while the device computes.
    """

    inner: DeviceMix
    oracle: Oracle
    before: Callable[[], None]
    _exchanged: Exchanged | None = None
    _part: int = 0

    def __post_init__(self) -> None:
        self.edges = self.inner.edges

    @property
    def active(self) -> Tensor | None:
        return self.inner.active

    def mean(self, w: Tensor, mirror: MirrorMap) -> Tensor:
        result = super().mean(w, mirror)
        assert self._exchanged is not None
        assert mirror.power is not None
        self.oracle.on_mix(
            self.edges.device,
            self._exchanged,
            self.edges.pending,
            w,
            result,
            mirror.power,
            self._part,
        )
        self._part += 1
        return result

    def exchange(self, x: Tensor, p: float) -> Exchanged:
        self.before()
        self._exchanged = self.inner.exchange(x, p)
        return self._exchanged


@dataclass(eq=False)
class ObservedPace:
    """The pace of a device, with observed mixes.

    Args:
        inner: The pace of the device.
        oracle: Checks the mixes.
        before: Called before every exchange.
    """

    inner: Pace
    oracle: Oracle
    before: Callable[[], None]

    @property
    def edges(self) -> Edges:
        return self.inner.edges

    def now(self) -> float:
        return self.inner.now()

    def check_clock(self, checkpoint: Checkpoint | None) -> None:
        self.inner.check_clock(checkpoint)

    def first_round(self) -> int:
        return self.inner.first_round()

    def may_join_others(self) -> bool:
        return self.inner.may_join_others()

    def join_until(self) -> float:
        return self.inner.join_until()

    def mix(self, t: int) -> DeviceMix:
        return ObservedMix(self.inner.mix(t), self.oracle, self.before)

    def rounds(self, stopped: StopSignal) -> Iterator[int]:
        return self.inner.rounds(stopped)

    def log_entry(self, done: int) -> dict[str, float]:
        return self.inner.log_entry(done)
