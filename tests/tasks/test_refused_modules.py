"""Modules and batches that cannot be trained are refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.learners import Batch, buffers_of, data
from torch import Tensor, nn
from torch.nn import functional as F

from gossamer.errors import InputError
from gossamer.tasks import Module


class Calls(nn.Module):
    """A linear layer and a function of its outputs."""

    def __init__(self, then: Callable[[Any, Tensor], Any], outputs: int = 3) -> None:
        super().__init__()
        self.layer = nn.Linear(5, outputs)
        self.then = then

    def forward(self, x: Tensor) -> Tensor:
        return self.then(self, self.layer(x))


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(3))


def complex_numbers() -> nn.Module:
    module = Calls(lambda own, x: x)
    module.phase = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    return module


def all_frozen() -> nn.Module:
    return nn.Linear(5, 3).requires_grad_(False)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "functional dropout in evaluation": (
        lambda: Calls(lambda own, x: F.dropout(x)),
        "training=self.training",
    ),
    "noise": (
        lambda: Calls(lambda own, x: x + torch.randn(3)),
        "with torch.randn in evaluation.*while self.training is true",
    ),
    "noise of the batch": (
        lambda: Calls(lambda own, x: x + torch.rand_like(x)),
        "with torch.rand_like in evaluation",
    ),
    "noise in turn": (
        lambda: Calls(lambda own, x: torch.bernoulli(x.sigmoid()) * x.max().item()),
        "with torch.bernoulli in evaluation",
    ),
    "an operation that has no replacement": (
        lambda: Calls(lambda own, x: torch.poisson(x.exp()) if own.training else x),
        "with torch.poisson'.*uniform, normal",
    ),
    "a generator of its own": (
        lambda: Calls(
            lambda own, x: x + torch.rand(3, generator=torch.Generator()) if own.training else x
        ),
        "with torch.rand'.*no generator",
    ),
    "no parameters": (nn.Flatten, "parameters to train"),
    "all frozen": (all_frozen, "parameters to train"),
    "complex": (complex_numbers, "real numbers"),
    "lazy": (lazy, "lazy layers have run once"),
    "another shape": (
        lambda: nn.Linear(4, 3),
        r"batch of shape \[2, 5\]; torch says: mat1 and mat2",
    ),
    "too few outputs": (lambda: nn.Linear(5, 2), r"\[batch, 3\]"),
    "outputs of another shape": (lambda: Calls(lambda own, x: x[:, :, None]), r"\[batch, 3\]"),
    "not a tensor": (lambda: Calls(lambda own, x: {"scores": x}), "or `logits`"),
    "its own mistake": (
        lambda: Calls(lambda own, x: own.missing(x)),
        "torch says: 'Calls' object has no attribute 'missing'",
    ),
    "not a module": (lambda: None, "a function that makes a torch.nn.Module"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_modules_that_cannot_be_trained_are_refused_in_one_sentence(kind: str) -> None:
    make, sentence = REFUSED[kind]
    state = torch.random.get_rng_state()
    with pytest.raises(InputError, match=sentence) as refusal:
        Module(make).learner(data(3))  # type: ignore[arg-type]
    assert "\n" not in str(refusal.value)
    assert torch.equal(state, torch.random.get_rng_state())


def test_batches_that_a_module_cannot_take_are_refused() -> None:
    source = data(3)
    learner = Module(nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3))).learner(source)
    stack = Batch.of(learner, source, batch=1)
    with pytest.raises(
        InputError, match=r"batch of shape \[1, 5\]; torch says: Expected more than 1 value"
    ):
        stack.gradient(learner, buffers_of(learner, 3))
