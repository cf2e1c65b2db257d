"""WPM: the weighted power-p mean with mirror descent.

H. Du, R. Yang, Y. Chen, Q. Xiang, A. Wibisono, W. Huang. "Achieving Efficient Distributed Machine Learning Using a Novel
Non-Linear Class of Aggregation Functions."

    z_i  = w_i^[p]                                the dual
    z̄_i  = Σ_j a_ij·z_j       w̄_i = z̄_i^[1/p]      the weighted power mean of the neighbourhood
    z_i⁺ = z̄_i − rate·d_i     w_i⁺ = (z_i⁺)^[1/p]   the mirror-descent step; a step rule says what the rate is
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from gossamer._core.registry import register
from gossamer.algorithms.base import (
    ORDERS,
    POINTS,
    Algorithm,
    Gradient,
    Mix,
    Order,
    Point,
    State,
    check_choice,
    descend,
)
from gossamer.algorithms.compression import Compressor
from gossamer.algorithms.directions import Direction, Steepest, Tracking
from gossamer.algorithms.schedules import Schedule, at, check_eta, check_p_schedule
from gossamer.algorithms.steps import Constant, Power, Ratio, Safe, StepRule
from gossamer.errors import InputError
from gossamer.mirror import PowerMap, inside_float32
from gossamer.network.weights import Metropolis, Sums, WeightRule

# By what weights sum to: those that no mean of models can be taken by.
_NO_MEAN: dict[Sums, str] = {
    "columns": "weights whose rows sum to 1; push-sum's are for a method that divides by that sum, `StochasticGradientPush`",
    "nothing": "weights of links; a server's clients have none, so nothing would be mixed: `FedAvg` averages them",
}


@register("algorithm", "wpm")
@dataclass(frozen=True)
class WPM(Algorithm):
    """The weighted power mean; p = 1 is D-PSGD bit for bit.

    `gradient_at`: "local" (w_i: the paper's Algorithm 1) or "aggregate" (w̄_i: its analysis). `order`: the paper combines,
    then adapts. `anchor`: let the power mean and the step act on w − w₀, the distance from the shared start, because a
    power mean amplifies the noise of the start. `WPM.paper` and `WPM.robust` are the two forms to name in a comparison.

    It is also the composition that related methods are recipes of: mirror map (p) × `direction` × `order` × `weights` ×
    step rule × `local_steps` × `compress`. Compressed, devices send only C(w − ŵ), the compressed change of what their
    neighbours know, and move by `pull` towards the mean of what is known (CHOCO-SGD): w + pull·(M(ŵ) − ŵ).
    `gain` multiplies the averaged distance from the start: without a power mean it is the control that a claim for p > 1
    has to be compared with (`recipes.gain_control`).

    >>> from gossamer.algorithms.directions import QuasiGlobal
    >>> WPM.paper(15).step, WPM(5, 0.02, direction=QuasiGlobal(0.9), order="adapt-then-combine").label
    (Power(), 'WPM p=5 QG')
    """

    p: float | Schedule = 3
    eta: float | Schedule = 0.01
    step: StepRule = field(default_factory=Safe)
    gradient_at: Point = "aggregate"
    order: Order = "combine-then-adapt"
    anchor: bool = False
    direction: Direction = field(default_factory=Steepest)
    local_steps: int = 1
    weights: WeightRule = Metropolis()  # noqa: RUF009 - frozen; a factory would uncover the property of this name
    compress: Compressor | None = None
    pull: float = 1.0
    gain: float | Schedule = 1.0

    def __post_init__(self) -> None:
        check_p_schedule(self.p)
        check_eta(self.eta)
        check_choice("gradient_at", self.gradient_at, POINTS)
        check_choice("order", self.order, ORDERS)
        if self.local_steps < 1:
            raise InputError("local_steps", self.local_steps, "a whole number of at least 1")
        if self.local_steps > 1 and isinstance(self.direction, Tracking):
            raise InputError(
                "local_steps",
                self.local_steps,
                "1 with tracking, which mixes its estimate in every step",
            )
        if self.weights.sums in _NO_MEAN:
            raise InputError("weights", self.weights, _NO_MEAN[self.weights.sums])
        if self.weights.sums != "both" and isinstance(self.direction, Tracking):
            accepted = "weights whose columns sum to 1 too, with tracking: else what is tracked does not sum to the gradients"
            raise InputError("weights", self.weights, accepted)
        if self.compress and not self.weights.fixed:
            accepted = "weights that use every link: a neighbour that is left out would miss what has changed"
            raise InputError("compress", self.compress.label, accepted)
        if not 0 < self.pull <= 1:
            raise InputError("pull", self.pull, "a number above 0 and at most 1")
        lowest = (
            self.gain if isinstance(self.gain, int | float) else getattr(self.gain, "lowest", 1)
        )
        if not 0 < lowest < math.inf:
            raise InputError("gain", self.gain, "a number above 0, or a schedule of such")
        if self.gain != 1 and not self.anchor:
            raise InputError(
                "gain",
                self.gain,
                "1 without `anchor = true`: it multiplies the distance from the start",
            )

    @classmethod
    def paper(cls, p: float, eta: float = 0.01, **changes: Any) -> WPM:
        """As the paper prints it: Algorithm 1 with η = η₀^(1 + p/2)."""
        return cls(p, eta, **{"step": Power(), "gradient_at": "local", **changes})

    @classmethod
    def robust(cls, p: float | Schedule, eta: float | Schedule = 0.01, **changes: Any) -> WPM:
        """Ours, recommended for p > 1: anchored at the start, safe-sign step, gradient at the aggregate."""
        return cls(p, eta, **{"step": Safe(), "anchor": True, **changes})

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return "step" if self.order == "combine-then-adapt" else "mix"

    @property
    def label(self) -> str:
        weights = (
            "" if isinstance(self.weights, Metropolis) else _words(type(self.weights).__name__)
        )
        parts = (
            f"WPM p={self.p:g}" if not callable(self.p) else "WPM p(t)",
            self.direction.label,
            f"{self.local_steps} local steps" if self.local_steps > 1 else "",
            weights,
            self.compress.label if self.compress else "",
            "" if self.gain == 1 else "gain" if callable(self.gain) else f"gain {self.gain:g}",
        )
        return " ".join(part for part in parts if part)

    def init(self, w0: Tensor) -> State:
        more = self.direction.init(w0)
        start = torch.zeros_like(w0) if self.anchor and not self._linear else w0
        if self.compress:
            more["sent"] = start.clone()  # all start alike, so that all know where the others are
        if self._linear:
            return {"w": w0.clone(), **more}
        return {"w": start.clone(), "start": w0[:1].clone(), **more}

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        name, x, M, S, model = self._space(state, grad, mix, t)
        memory = {key: value for key, value in state.items() if key not in ("w", "z", "start")}
        before = model(x).clone() if self.direction.looks_back else None
        if self.order == "adapt-then-combine":
            x_next, memory = self._adapt(x, x, memory, grad, mix, S, model)
            x_next, memory = self._combine(x_next, memory, M, mix, t)
        else:
            x_mean, memory = self._combine(x, memory, M, mix, t)
            x_next, memory = self._adapt(
                x_mean, x if self.gradient_at == "local" else x_mean, memory, grad, mix, S, model
            )
        if before is not None:
            way = at(self.eta, t, mix.devices, x) * self.local_steps
            memory |= self.direction.remember(memory, before, model(x_next), way)
        return self._settled({**state, **memory, name: x_next}, mix)

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        _, x, M, S, model = self._space(state, grad, mix, t)
        if self.order == "combine-then-adapt":
            return model(self._combine(x, state, M, mix, t)[0])
        return model(self._adapt(x.clone(), x, state, grad, mix, S, model)[0])

    def p_at(self, t: int) -> float:
        return float(self.p(t)) if callable(self.p) else float(self.p)  # type: ignore[arg-type]

    def models(self, state: State) -> Tensor:
        return self._model(state, state["z"] if "z" in state else state["w"])

    def _combine(self, x: Tensor, memory: State, M: Map, mix: Mix, t: int) -> tuple[Tensor, State]:
        """The mean of the neighbourhood, M(x); compressed, x + pull·(M(x̂) − x̂), where x̂ is what the neighbours know of x."""
        if self.compress is None:
            return M(x), memory
        x_known = memory["sent"] + self.compress(x - memory["sent"], mix.devices, t)
        return x + self.pull * (M(x_known) - x_known), {**memory, "sent": x_known}

    def _adapt(
        self, x: Tensor, at: Tensor, memory: State, grad: Gradient, mix: Mix, S: Step, model: Map
    ) -> tuple[Tensor, State]:
        """The steps of a round from x, the first with its gradient at `at`."""
        for step in range(self.local_steps):
            d, new = self.direction.along(grad(model(at), step), memory, mix)
            memory = {**memory, **new}
            x = at = S(x, d)
        return x, memory

    # A state is the model w, less the start w₀ if anchored. Where the rate is the same for every coordinate, the mirror step
    # is linear in the dual: the state is then z = w^[p], WPM is plain gossip on z, and a round needs a single root.

    @property
    def _linear(self) -> bool:
        """At p = 1 every rule but the ratio is linear: without a gain an anchor changes nothing."""
        return self.p == 1 and self.gain == 1 and not isinstance(self.step, Ratio)

    def _settled(self, state: State, mix: Mix) -> State:
        """The state in the dual, where the step rule is linear there and the numbers can hold it: float64, then float32.

        All change to it together, and while all are here: a device that is away keeps its rows.
        """
        if (
            callable(self.p)
            or self.p == 1
            or not isinstance(self.step, Constant)
            or self.compress
            or not mix.linear
        ):
            return state
        if "z" in state and state["z"].dtype == state["start"].dtype:
            return state
        all_here = mix.active is None or bool(mix.active.all())
        if "w" in state:
            mirror = PowerMap(self.p)
            if not mix.everywhere(all_here and bool(mirror.fits(state["w"]).all())):
                return state
            return {
                "z": mirror.to_dual(state["w"]),
                **{name: x for name, x in state.items() if name != "w"},
            }
        z = state["z"]
        if not mix.everywhere(all_here and inside_float32(z)):
            return state
        return {**state, "z": z.float()}

    def _model(self, state: State, x: Tensor) -> Tensor:
        """The model that a point x of the state's space stands for."""
        start = state.get("start")
        if start is None:
            return x
        if "z" in state:
            assert not callable(self.p)
            x = PowerMap(self.p).to_primal(x, start.dtype)
        return x + start if self.anchor else x

    def _space(self, state: State, grad: Gradient, mix: Mix, t: int) -> _Space:
        """The mean M, the step S and the model of a point, in the space of the state: dual or primal."""
        like = state["z"] if "z" in state else state["w"]
        p, η, gain = (
            self.p_at(t),
            at(self.eta, t, mix.devices, like),
            at(self.gain, t, mix.devices, like),
        )
        if self.compress:
            numbers, itemsize = like.shape[1], like.element_size()
            mix = mix.sending(self.compress.bytes(numbers, itemsize), numbers * itemsize)

        def model(x: Tensor) -> Tensor:
            return self._model(state, x)

        def amplified(M: Map, gain: float | Tensor) -> Map:
            return M if isinstance(gain, float) and gain == 1 else lambda x: gain * M(x)

        if "z" in state:
            assert isinstance(self.step, Constant)
            rate = self.step.rate(η, p)
            # For p >= 9 a sum in float32 is well within the dual's accuracy, 8·p·eps; below, it is taken in float64.
            M = amplified(mix if p >= 9 else mix.exactly, gain**p)
            return "z", state["z"], M, lambda z, d: descend(z, d, rate), model
        return (
            "w",
            state["w"],
            amplified(lambda w: mix.power_mean(w, p), gain),
            lambda w, d: self.step(w, d, η, p, lambda: grad.loss(model(w))),
            model,
        )


Map = Callable[[Tensor], Tensor]
Step = Callable[[Tensor, Tensor], Tensor]
_Space = tuple[str, Tensor, Map, Step, Map]


def _words(name: str) -> str:
    """RandomPeer → random peer."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
