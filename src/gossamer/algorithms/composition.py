"""The composition: one algorithm of independent parts, of which many methods are settings.

    mirror map × direction × order × weights × step rule × local steps × compression × gain

With M the mean of the neighbourhood in the dual of the mirror map, S the step rule, and d the
direction, a round is

    combine-then-adapt    w⁺ = S(M(w), d)
    adapt-then-combine    w⁺ = M(S(w, d))

WPM, quasi-global momentum, gradient tracking, CHOCO-SGD and others are presets of it in files of
their own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from gossamer._core.arguments import number_of
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
    check_local_steps,
)
from gossamer.algorithms.compression import Compressor
from gossamer.algorithms.directions import Direction, PlainGradient
from gossamer.algorithms.schedules import LocalSchedule, Rate, Schedule, at, check_eta, lowest
from gossamer.algorithms.spaces import DualSpace, LocalSpace, PrimalSpace, Space, move_to_dual
from gossamer.algorithms.steps import Safe, StepRule
from gossamer.errors import InputError
from gossamer.mirror import IdentityMap, MirrorMap, PowerMap, check_p, power_map
from gossamer.network.weights import Metropolis, NetworkWeights, Sums, WeightRule

# Weights by which no mean of models can be taken, and why, by what they sum to.
_NO_MEAN: dict[Sums, str] = {
    "columns": "weights whose rows sum to 1; push-sum's need a method that divides by their sum, "
    "`PushSum`",
    "nothing": "weights of links; a server's clients have none, so nothing would be mixed: "
    "`FedAvg` averages them",
}


@register("mirror", "power-schedule")
@dataclass(frozen=True)
class PowerSchedule:
    """Power maps whose exponent follows a schedule.

    Args:
        p: A callable from the round to the exponent, such as `Switch(5, 20)`, or a schedule that
            sees the state, such as `ByDivergence(15)`; its values are rounded to whole numbers.

    Example:
        >>> from gossamer.algorithms import Switch
        >>> schedule = PowerSchedule(Switch(5, 20))
        >>> schedule(0), schedule(20)
        (PowerMap(p=5.0), IdentityMap())
    """

    p: Schedule | LocalSchedule

    def __post_init__(self) -> None:
        if lowest(self.p) < 1:
            raise InputError("p", self.p, "a schedule that never falls below 1")

    @property
    def label(self) -> str:
        return "local p" if self.is_local else "p(t)"

    @property
    def is_local(self) -> bool:
        """True if p differs by device, with what the device sees."""
        return isinstance(self.p, LocalSchedule)

    def __call__(self, t: int) -> MirrorMap:
        """Return the map of round t; the identity if every device has its own."""
        if isinstance(self.p, LocalSchedule):
            return IdentityMap()
        try:
            p = number_of(self.p(t))
        except Exception as error:  # the function is the user's
            accepted = "a number of at least 1, or a function that returns one for every round"
            raise InputError("p", self.p, accepted) from error
        return power_map(p)

    def maps(self, t: int, divergence: Tensor) -> list[tuple[MirrorMap, Tensor]]:
        """Return the maps of round t, with the rows of the devices that use each.

        Args:
            t: The round.
            divergence: How far the neighbours of every device are from it.
        """
        if not isinstance(self.p, LocalSchedule):
            return [(self(t), torch.arange(len(divergence), device=divergence.device))]
        # Whole numbers, so that many devices share a power, which multiplications compute.
        p = self.p(t, divergence).round()
        found = []
        for value in p.unique().tolist():
            found.append((power_map(value), (p == value).nonzero()[:, 0]))
        return found


Mirror = MirrorMap | PowerSchedule


def mirror_of(p: float | Schedule | LocalSchedule) -> Mirror:
    """Return the mirror map of an exponent, or the schedule of maps of a schedule.

    Args:
        p: A number of at least 1, or a schedule that never falls below 1.

    Example:
        >>> mirror_of(15)
        PowerMap(p=15)
    """
    if callable(p):
        return PowerSchedule(p)
    check_p(p)
    return power_map(p)


@register("algorithm", "composition")
@dataclass(frozen=True)
class Composition(Algorithm):
    """An algorithm composed of independent parts.

    Args:
        mirror: The mirror map in whose dual models are averaged, or a `PowerSchedule`.
        eta: The learning rate: a number or a schedule.
        step: The step rule.
        gradient_at: Take the gradient at the device's own model ("local") or at the mean of its
            neighbourhood ("aggregate").
        order: Mix first ("combine-then-adapt") or step first ("adapt-then-combine").
        anchor: Let mean and step act on w − w₀, the distance from the shared start: a power mean
            amplifies the noise of the start.
        direction: What a device steps along, from its gradients.
        local_steps: The number of steps per round.
        weights: The rule that turns links into weights.
        compress: Send only C(w − ŵ), the compressed change of what the neighbours know, and move by
            `pull` towards the mean of what is known: w + pull·(M(ŵ) − ŵ).
        pull: See `compress`.
        gain: Multiply the averaged distance from the start by this number or schedule, which may
            see the state. Without a power mean it is the control that a claim for p > 1 must be
            compared with.

    Example:
        >>> from gossamer.algorithms import QuasiGlobalMomentum
        >>> Composition(direction=QuasiGlobalMomentum(0.9), order="adapt-then-combine").label
        'Composition quasi-global'
    """

    mirror: Mirror = IdentityMap()  # noqa: RUF009 - frozen
    eta: Rate = 0.01
    step: StepRule = field(default_factory=Safe)
    gradient_at: Point = "aggregate"
    order: Order = "combine-then-adapt"
    anchor: bool = False
    direction: Direction = field(default_factory=PlainGradient)
    local_steps: int = 1
    weights: WeightRule = NetworkWeights()  # noqa: RUF009 - frozen; a factory hides the property
    compress: Compressor | None = None
    pull: float = 1.0
    gain: Rate | LocalSchedule = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_eta(self.eta)
        check_choice("gradient_at", self.gradient_at, POINTS)
        check_choice("order", self.order, ORDERS)
        check_local_steps(self.local_steps)
        if self.local_steps > 1 and self.direction.mixes:
            accepted = (
                f"1 with {self.direction.label}, which mixes its estimate in every step; K-GT "
                "tracks gradients over several local steps"
            )
            raise InputError("local_steps", self.local_steps, accepted)
        if self.step.powers_only and self.mirror_at(0).power is None:
            accepted = '"constant" or "plain" with a mirror map that is no power'
            raise InputError("step", self.step, accepted)
        self._check_weights()
        self._check_gain()
        if self._has_local_p and self.order == "adapt-then-combine":
            accepted = (
                '"combine-then-adapt" with a p that sees the state: a device knows its neighbours '
                "only after it has mixed"
            )
            raise InputError("order", self.order, accepted)

    def _check_weights(self) -> None:
        if self.weights.sums in _NO_MEAN:
            raise InputError("weights", self.weights, _NO_MEAN[self.weights.sums])
        if self.weights.sums != "both" and self.direction.mixes:
            accepted = (
                f"weights whose columns sum to 1 too, with {self.direction.label}: else what is "
                "tracked does not sum to the gradients"
            )
            raise InputError("weights", self.weights, accepted)
        if self.compress and not self.weights.fixed:
            accepted = (
                "weights that use every link: a neighbour that is left out would miss what has "
                "changed"
            )
            raise InputError("compress", self.compress.label, accepted)
        if not 0 < self.pull <= 1:
            raise InputError("pull", self.pull, "a number above 0 and at most 1")

    def _check_gain(self) -> None:
        if not 0 < lowest(self.gain) < math.inf:
            raise InputError("gain", self.gain, "a number above 0, or a schedule of such")
        if self.gain != 1 and not self.anchor:
            accepted = "1 without `anchor = true`: it multiplies the distance from the start"
            raise InputError("gain", self.gain, accepted)

    @property
    def _has_local_p(self) -> bool:
        return isinstance(self.mirror, PowerSchedule) and self.mirror.is_local

    @property
    def needs_gradients(self) -> bool:
        return self.direction.needs_gradients

    @property
    def ends_with(self) -> Literal["step", "mix"]:
        return "step" if self.order == "combine-then-adapt" else "mix"

    @property
    def without_rounds(self) -> Literal["no", "in pairs", "in the background"]:
        return "no" if self.compress else super().without_rounds

    @property
    def label(self) -> str:
        """The name in tables: "Composition" and what differs from the defaults."""
        parts = ["Composition", self.mirror.label, self.direction.label]
        if self.local_steps > 1:
            parts.append(f"{self.local_steps} local steps")
        if not isinstance(self.weights, NetworkWeights | Metropolis):
            parts.append(_words(type(self.weights).__name__))
        if self.compress:
            parts.append(self.compress.label)
        if callable(self.gain):
            parts.append("gain")
        elif self.gain != 1:
            parts.append(f"gain {self.gain:g}")
        return self.labelled(" ".join(part for part in parts if part))

    def init(self, w0: Tensor) -> State:
        memory = self.direction.init(w0)
        w = w0.clone()
        if self.anchor and not self._linear:
            w = torch.zeros_like(w0)
        if self.compress:
            memory["sent"] = w.clone()  # all start alike, so that all know where the others are
        if self._linear:
            return {"w": w, **memory}
        return {"w": w, "start": w0[:1].clone(), **memory}

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        space = self._space(state, grad, mix, t)
        x = state[space.name]
        memory = {key: value for key, value in state.items() if key not in ("w", "z", "start")}
        w = None
        if self.direction.looks_back:
            w = space.model(x).clone()
        if self.order == "combine-then-adapt":
            x_mean, memory = self._combine(x, memory, space, mix, t)
            point = x if self.gradient_at == "local" else x_mean
            x_next, memory = self._adapt(x_mean, point, memory, grad, mix, space)
        else:
            x_next, memory = self._adapt(x, x, memory, grad, mix, space)
            x_next, memory = self._combine(x_next, memory, space, mix, t)
        if w is not None:
            rate = at(self.eta, t, mix.devices, x) * self.local_steps
            memory |= self.direction.remember(memory, w, space.model(x_next), rate)
        return {**state, **memory, space.name: x_next}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        space = self._space(state, grad, mix, t)
        x = state[space.name]
        if self.order == "combine-then-adapt":
            return space.model(self._combine(x, state, space, mix, t)[0])
        return space.model(self._adapt(x.clone(), x, state, grad, mix, space)[0])

    def models(self, state: State) -> Tensor:
        return self._model(state, state["z"] if "z" in state else state["w"])

    def mirror_at(self, t: int) -> MirrorMap:
        if callable(self.mirror):
            return self.mirror(t)
        return self.mirror

    def compact(self, state: State, agree: Callable[[bool], bool]) -> State:
        """Keep the state in the dual if steps are linear there: a round then needs one root."""
        if not isinstance(self.mirror, PowerMap) or not self.step.uniform or self.compress:
            return state
        if isinstance(self.gain, LocalSchedule):
            return state
        return move_to_dual(state, self.mirror, agree)

    def _combine(
        self, x: Tensor, memory: State, space: Space, mix: Mix, t: int
    ) -> tuple[Tensor, State]:
        """Return the mean of the neighbourhood, M(x).

        Compressed, it is x + pull·(M(x̂) − x̂), where x̂ is what the neighbours know of x.
        """
        if self.compress is None:
            return space.mean(x), memory
        x_known = memory["sent"] + self.compress(x - memory["sent"], mix.devices, t)
        x_next = x + self.pull * (space.mean(x_known) - x_known)
        return x_next, {**memory, "sent": x_known}

    def _adapt(
        self, x: Tensor, point: Tensor, memory: State, grad: Gradient, mix: Mix, space: Space
    ) -> tuple[Tensor, State]:
        """Take the steps of a round from x, the first with its gradient at `point`."""
        for step in range(self.local_steps):
            d, changed = self.direction.along(grad(space.model(point), step), memory, mix)
            memory = {**memory, **changed}
            x = space.step(x, d)
            point = x
        return x, memory

    @property
    def _linear(self) -> bool:
        """True if a round is linear in the models. An anchor then changes nothing."""
        identity = isinstance(self.mirror, MirrorMap) and self.mirror.power == 1
        return identity and self.gain == 1 and self.step.linear_at_identity

    def _model(self, state: State, x: Tensor) -> Tensor:
        """Return the model of a point x of the state's space."""
        start = state.get("start")
        if start is None:
            return x
        if "z" in state:
            x = self.mirror_at(0).to_primal(x, start.dtype)
        return x + start if self.anchor else x

    def _space(self, state: State, grad: Gradient, mix: Mix, t: int) -> Space:
        """Return mean, step and model in the space of the state: primal or dual."""
        like = state["z"] if "z" in state else state["w"]
        mirror = self.mirror_at(t)
        eta = at(self.eta, t, mix.devices, like)
        if self.compress:
            elements = like.shape[1]
            itemsize = like.element_size()
            message = self.compress.bytes(elements, itemsize)
            mix = mix.with_message_size(message, elements * itemsize)

        def model(x: Tensor) -> Tensor:
            return self._model(state, x)

        if self._has_local_p or isinstance(self.gain, LocalSchedule):
            return self._local_space(eta, grad, mix, t, model, like)
        gain = at(self.gain, t, mix.devices, like)
        if "z" in state:
            assert mirror.power is not None
            return DualSpace(mix, mirror.power, self.step.rate(eta, mirror.power), gain, model)
        return PrimalSpace(mix, mirror, self.step, eta, gain, model, grad.loss)

    def _local_space(
        self,
        eta: float | Tensor,
        grad: Gradient,
        mix: Mix,
        t: int,
        model: Callable[[Tensor], Tensor],
        like: Tensor,
    ) -> Space:
        """Return mean, step and model where p or gain follow what each device sees."""

        def maps(divergence: Tensor) -> list[tuple[MirrorMap, Tensor]]:
            if isinstance(self.mirror, PowerSchedule):
                return self.mirror.maps(t, divergence)
            return [(self.mirror, torch.arange(len(divergence), device=divergence.device))]

        def gain(divergence: Tensor) -> float | Tensor:
            if isinstance(self.gain, LocalSchedule):
                return self.gain(t, divergence)[:, None].to(like)
            return at(self.gain, t, mix.devices, like)

        return LocalSpace(mix, maps, self.step, eta, gain, model, grad.loss)


def _words(name: str) -> str:
    """Return the words of a class name: RandomPeer → random peer."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
