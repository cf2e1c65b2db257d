"""The conformance suite finds methods whose devices use each other's rows without `mix`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gossamer import draws, testing
from gossamer.algorithms import DPSGD, Adam, Algorithm, Broken, Clip, Gradient, Guarded, Mix, State

Part = Callable[[Tensor, Any, Any], Tensor]


def plain(w: Tensor, grad: Gradient, mix: Mix) -> Tensor:
    return mix(w) - 0.05 * grad(w)


@dataclass(frozen=True)
class Method(Algorithm):
    """D-PSGD with a memory, of which some part is another one."""

    next: Part = plain
    half: Part = lambda w, grad, mix: mix(w)
    shown: Callable[[Tensor], Tensor] = lambda w: w
    kept: Callable[[Tensor], Tensor] = field(default=lambda d: d)

    def init(self, w0: Tensor) -> State:
        return {"w": w0.clone(), "memory": torch.zeros_like(w0)}

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        w = self.next(state["w"], grad, mix) - 0.01 * state["memory"]
        return {"w": w, "memory": self.kept(0.5 * state["memory"] + state["w"] - w)}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return self.half(state["w"], grad, mix)

    def models(self, state: State) -> Tensor:
        return self.shown(state["w"])


def rows_of_senders(w: Tensor, grad: Gradient, mix: Mix) -> Tensor:
    """Take the neighbours' own rows instead of what they sent."""
    near = mix.neighbours(w.round(decimals=1))
    return torch.zeros_like(w).index_add_(0, near.receiver, near.weight[:, None] * w[near.sender])


def seeded_noise(w: Tensor, grad: Gradient, mix: Mix) -> Tensor:
    noise = torch.randn(w.shape, generator=torch.Generator().manual_seed(1), dtype=w.dtype)
    return mix(w) - 0.05 * (grad(w) + 0.1 * noise)


def one_product(w: Tensor, grad: Gradient, mix: Mix) -> Tensor:
    weights = torch.full((len(w), len(w)), 1 / len(w), dtype=w.dtype)
    return weights @ w - 0.05 * grad(w)


def mean_of_all(w: Tensor) -> Tensor:
    return w.mean(0).expand_as(w).contiguous()


W = "depend on the 'w' of device"
GRADIENT = "depend on the gradient of device"
POINT = "lets the point of the gradient of device . depend on the 'w' of device"
SENT = "lets what is passed to mix of device . depend on the 'w' of device"
RESULT = "depend on the result of mix of device"
ALONE = "is alone in its stack"

# What `round` returns, and what the message says.
ROUNDS: dict[str, tuple[Callable[[Tensor, Any, Any], Tensor], str]] = {
    "mean of all models": (lambda w, grad, mix: w.mean(0) - 0.05 * grad(w), W),
    "model of device 0": (lambda w, grad, mix: (mix(w) + w[0]) / 2, f"{W} 0 without mix"),
    "roll": (lambda w, grad, mix: (w + w.roll(1, 0)) / 2 - 0.05 * grad(w), W),
    "product": (one_product, W),
    "order of the models": (lambda w, grad, mix: mix(w) - 0.05 * w.sort(0).values, W),
    "norm of all": (lambda w, grad, mix: mix(w) - 0.01 * grad(w) / w.norm(), W),
    "rows of the senders": (rows_of_senders, W),
    "mean of all gradients": (lambda w, grad, mix: mix(w) - 0.05 * grad(w).mean(0), GRADIENT),
    "gradient of device 0": (lambda w, grad, mix: mix(w) - 0.05 * grad(w)[0], f"{GRADIENT} 0"),
    "gradient at another model": (lambda w, grad, mix: mix(w) - 0.05 * grad(w.flip(0)), POINT),
    "gradient at the mean": (lambda w, grad, mix: mix(w) - 0.05 * grad(mean_of_all(w)), POINT),
    "what another receives": (lambda w, grad, mix: mix(w).flip(0) - 0.05 * grad(w), RESULT),
    "sends another model": (lambda w, grad, mix: mix(w.flip(0)) - 0.05 * grad(w), SENT),
    "number of rows": (lambda w, grad, mix: mix(w) - 0.3 / len(w) * grad(w), ALONE),
    "fixed number of rows": (lambda w, grad, mix: mix(w) - torch.ones(7, 1) * 0.01, ALONE),
    "number of the row": (
        lambda w, grad, mix: mix(w) - 0.01 * torch.arange(len(w))[:, None],
        ALONE,
    ),
    "noise by row": (seeded_noise, ALONE),
    "noise": (lambda w, grad, mix: mix(w) - 0.01 * torch.rand_like(w), "when it runs again: 'w'"),
    "weights of the network": (lambda w, grad, mix: w * mix.weights.devices, "'weights'"),
    "data of the task": (lambda w, grad, mix: grad.worker.gradient(w, 9, 0, None), "'worker'"),
}
CHEATS: dict[str, tuple[Algorithm, str]] = {
    "memory of all": (Method(kept=mean_of_all), "lets the next 'memory' of device"),
    "halfway": (Method(half=lambda w, grad, mix: mean_of_all(w)), "lets the next 'halfway'"),
    "models": (Method(shown=mean_of_all), "lets the next 'models' of device"),
}
for name, (part, message) in ROUNDS.items():
    CHEATS[name] = Method(next=part), message


@pytest.mark.parametrize("name", CHEATS)
def test_a_method_that_uses_other_rows_is_found(name: str) -> None:
    method, sentence = CHEATS[name]
    with pytest.raises(AssertionError, match=sentence) as found:
        testing.check(method, rounds=4)
    message = str(found.value)
    assert message.startswith("Method ")
    assert "\n" not in message


class Cheat(Method):
    """The method that the page of an own method shows."""

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        return state | {"w": state["w"].mean(0) - 0.01 * grad(state["w"]).sign()}


def test_the_page_quotes_the_message() -> None:
    with pytest.raises(AssertionError) as found:
        testing.check(Cheat())
    page = Path(__file__).parents[1] / "docs" / "your-own" / "method.md"
    assert str(found.value) in " ".join(page.read_text().split())


def own_rates(w: Tensor, grad: Gradient, mix: Mix) -> Tensor:
    """A rate and noise by the number of the device, and a norm per row."""
    rate = 0.01 * (1 + mix.devices[:, None])
    noise = draws.normal(1, "noise", mix.devices.numpy()[:, None], range(w.shape[1]))
    d = grad(w) + 0.01 * torch.from_numpy(noise).to(w)
    length: Tensor = d.norm(dim=1, keepdim=True)
    return mix(w) - rate * d / (1 + length)


def link_by_link(w: Tensor, grad: Gradient, mix: Mix) -> Tensor:
    near = mix.neighbours(w)
    received = near.weight[:, None] * near.value.clamp(-9, 9)
    return torch.zeros_like(w).index_add_(0, near.receiver, received) - 0.05 * grad(w)


def only_active(w: Tensor, grad: Gradient, mix: Mix) -> Tensor:
    """Gradients of the devices that take part only, twice."""
    active = torch.ones(len(w), dtype=torch.bool)
    if mix.active is not None:
        active = mix.active
    rows = active.nonzero()[:, 0]
    w = mix(w)
    for step in range(2):
        w[rows] -= 0.05 * grad(w[rows], step, rows)
    return w


@pytest.mark.parametrize(
    "method",
    [
        Method(),
        Method(next=own_rates),
        Method(next=link_by_link),
        Method(next=only_active),
        Method(optimizer=Adam(), weight_decay=0.1, clip_norm=1.0),
        Broken(Guarded(DPSGD(0.05), Clip(0.5)), sends="noise", size=0.1),
    ],
    ids=["plain", "own rates", "link by link", "only active", "adam", "broken"],
)
def test_a_method_that_uses_its_own_rows_passes(method: Algorithm) -> None:
    assert testing.check(method, rounds=4) == ["churn", "changing", "static"]
