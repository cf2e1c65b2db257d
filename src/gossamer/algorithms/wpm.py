"""WPM: the weighted power-p mean with mirror descent.

H. Du, R. Yang, Y. Chen, Q. Xiang, A. Wibisono, W. Huang. "Achieving Efficient Distributed Machine Learning Using a Novel
Non-Linear Class of Aggregation Functions."

    z_i  = w_i^[p]                                the dual
    z̄_i  = Σ_j a_ij·z_j       w̄_i = z̄_i^[1/p]      the weighted power mean of the neighbourhood
    z_i⁺ = z̄_i − rate·d_i     w_i⁺ = (z_i⁺)^[1/p]   the mirror-descent step; a step rule says what the rate is
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

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
from gossamer.algorithms.schedules import Schedule, at, check_eta, check_p_schedule
from gossamer.algorithms.steps import Constant, Power, Ratio, Safe, StepRule
from gossamer.mirror import PowerMap, inside_float32


@dataclass(frozen=True)
class WPM(Algorithm):
    """The weighted power mean; p = 1 is D-PSGD bit for bit.

    `gradient_at`: "local" (w_i: the paper's Algorithm 1) or "aggregate" (w̄_i: its analysis). `order`: the paper combines,
    then adapts. `anchor`: let the power mean and the step act on w − w₀, the distance from the shared start, because a
    power mean amplifies the noise of the start. `WPM.paper` and `WPM.robust` are the two forms to name in a comparison.

    >>> WPM.paper(15)
    WPM(p=15, eta=0.01, step=Power(), gradient_at='local', order='combine-then-adapt', anchor=False)
    """

    p: float | Schedule = 3
    eta: float | Schedule = 0.01
    step: StepRule = field(default_factory=Safe)
    gradient_at: Point = "aggregate"
    order: Order = "combine-then-adapt"
    anchor: bool = False

    def __post_init__(self) -> None:
        check_p_schedule(self.p)
        check_eta(self.eta)
        check_choice("gradient_at", self.gradient_at, POINTS)
        check_choice("order", self.order, ORDERS)

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
        return f"WPM p={self.p:g}" if not callable(self.p) else "WPM p(t)"

    def init(self, w0: Tensor) -> State:
        if self.p == 1 and not isinstance(self.step, Ratio):  # every other rule is then linear: an anchor changes nothing
            return {"w": w0.clone()}
        return self._settled({"w": torch.zeros_like(w0) if self.anchor else w0.clone(), "start": w0[:1].clone()})

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        name, x, M, S, model = self._space(state, grad, mix, t)
        if self.order == "adapt-then-combine":
            x_next = M(S(x, grad(model(x))))
        else:
            x_mean = M(x)
            d = grad(model(x if self.gradient_at == "local" else x_mean))
            x_next = S(x_mean, d)
        # A device that is away keeps its rows, so that the form of a state changes only while all are here.
        all_here = mix.active is None or bool(mix.active.all())
        state = {**state, name: x_next}
        return self._settled(state) if all_here else state

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        _, x, M, S, model = self._space(state, grad, mix, t)
        return model(M(x) if self.order == "combine-then-adapt" else S(x.clone(), grad(model(x))))

    def p_at(self, t: int) -> float:
        return float(self.p(t)) if callable(self.p) else float(self.p)  # type: ignore[arg-type]

    def models(self, state: State) -> Tensor:
        return self._model(state, state["z"] if "z" in state else state["w"])

    # A state is the model w, less the start w₀ if anchored. Where the rate is the same for every coordinate, the mirror step
    # is linear in the dual: the state is then z = w^[p], WPM is plain gossip on z, and a round needs a single root.

    def _settled(self, state: State) -> State:
        """The state in the dual, where the step rule is linear there and the numbers can hold it: float64, then float32."""
        if callable(self.p) or self.p == 1 or not isinstance(self.step, Constant):
            return state
        mirror, start = PowerMap(self.p), state["start"]
        if "w" in state:
            return {"z": mirror.to_dual(state["w"]), "start": start} if mirror.fits(state["w"]).all() else state
        z = state["z"]
        return {"z": z.float(), "start": start} if z.dtype != start.dtype and inside_float32(z) else state

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
        p, η = self.p_at(t), at(self.eta, t, mix.devices, like)

        def model(x: Tensor) -> Tensor:
            return self._model(state, x)

        if "z" in state:
            assert isinstance(self.step, Constant)
            rate = self.step.rate(η, p)
            # For p >= 9 a sum in float32 is well within the dual's accuracy, 8·p·eps; below, it is taken in float64.
            return "z", state["z"], mix if p >= 9 else mix.exactly, lambda z, d: descend(z, d, rate), model
        return (
            "w",
            state["w"],
            lambda w: mix.power_mean(w, p),
            lambda w, d: self.step(w, d, η, p, lambda: grad.loss(model(w))),
            model,
        )


_Space = tuple[str, Tensor, Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor], Callable[[Tensor], Tensor]]
