"""WPM: the weighted power-p mean with mirror descent.

H. Du, R. Yang, Y. Chen, Q. Xiang, A. Wibisono, W. Huang. "Achieving Efficient Distributed Machine
Learning Using a Novel Non-Linear Class of Aggregation Functions."

    z_i  = w_i^[p]                                the dual
    z̄_i  = Σ_j a_ij·z_j       w̄_i = z̄_i^[1/p]      the weighted power mean of the neighbourhood
    z_i⁺ = z̄_i − rate·d_i     w_i⁺ = (z_i⁺)^[1/p]   the mirror-descent step, by a step rule
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gossamer.algorithms.base import Order, Point
from gossamer.algorithms.composition import Composition, mirror_of
from gossamer.algorithms.presets import Preset
from gossamer.algorithms.registry import RATE, Choice, method
from gossamer.algorithms.schedules import LocalSchedule, Rate, Schedule, Switch
from gossamer.algorithms.steps import Power, Safe, StepRule

POWERS = (3, 5, 9, 15)
# The exponents that `tune` tries: constant, and falling to 1 after 20 rounds.
CONSTANT_OR_FALLING = Choice((*POWERS, *(Switch(p, 20) for p in POWERS)))
FALLING = Choice(tuple(Switch(p, 20) for p in POWERS))


@method(
    "wpm",
    label="WPM",
    paper="Du et al.; anchored, safe sign",
    tune={"eta": RATE, "p": CONSTANT_OR_FALLING},
)
@dataclass(frozen=True)
class WPM(Preset):
    """The weighted power mean. The defaults are the form that is recommended for p > 1.

    It is anchored at the start, with the safe-sign step and the gradient at the aggregate. p = 1 is
    D-PSGD bit for bit. At a constant p > 1 the safe-sign step may hold a coordinate at its start
    where devices pull both ways, however small η is. So let p fall to 1 in the end:
    `WPM(p=Switch(3, 100))`.

    Args:
        p: The exponent: a number of at least 1, or a schedule, which may see the state.
        eta: The learning rate: a number or a schedule.
        step: The step rule.
        gradient_at: Take the gradient at w_i ("local": the paper's Algorithm 1) or at w̄_i
            ("aggregate": its analysis).
        order: "combine-then-adapt", as in the paper, or "adapt-then-combine".
        anchor: Let mean and step act on w − w₀, the distance from the shared start, because a power
            mean amplifies the noise of the start.

    Example:
        >>> WPM(p=15, eta=0.05).label
        'WPM p=15'
    """

    p: float | Schedule | LocalSchedule = 3
    eta: Rate = 0.01
    step: StepRule = field(default_factory=Safe)
    gradient_at: Point = "aggregate"
    order: Order = "combine-then-adapt"
    anchor: bool = True

    def expand(self) -> Composition:
        return Composition(
            mirror_of(self.p), self.eta, self.step, self.gradient_at, self.order, self.anchor
        )

    @property
    def label(self) -> str:
        if callable(self.p):
            return self.labelled(f"WPM {mirror_of(self.p).label}")
        return self.labelled(f"WPM p={self.p:g}")


@method(
    "wpm-paper",
    label="WPM paper",
    paper="Du et al., as printed",
    tune={"eta": RATE, "p": Choice(POWERS)},
)
@dataclass(frozen=True)
class WPMPaper(Preset):
    """The weighted power mean as it is printed: Algorithm 1 with η = η₀^(1 + p/2).

    Args:
        p: The exponent.
        eta: The paper's η₀.

    Example:
        >>> WPMPaper(p=15).expand().step
        Power()
    """

    p: float = 3
    eta: float = 0.01

    def expand(self) -> Composition:
        return Composition(mirror_of(self.p), self.eta, Power(), gradient_at="local")
