"""Modules of the user's own: losses, starts, frozen parameters."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from support.learners import Batch, data, flat, flat_gradient, plain_modules
from torch import Tensor, nn
from torch.nn import functional as F

from gossamer.errors import InputError
from gossamer.tasks import Cnn, Mlp, Module, from_arrays


def test_a_loss_of_the_users_own() -> None:
    source = data(3)

    def focal(outputs: Tensor, y: Tensor) -> Tensor:
        share = outputs.softmax(1).gather(1, y[:, None])[:, 0]
        return -((1 - share) ** 2) * share.log()

    module = nn.Linear(5, 3)
    learner = Module(module, loss=focal).learner(source)
    stack = Batch.of(learner, source)
    gradient = stack.gradient(learner)
    for i, own in enumerate(plain_modules(learner, lambda: module, stack.w)):
        focal(own(stack.x[i]), stack.y[i]).mean().backward()
        expected = flat_gradient(own)
        torch.testing.assert_close(gradient[i], expected, rtol=1e-10, atol=1e-12)
    with pytest.raises(InputError) as refusal:
        Module(nn.Linear(5, 3), loss=lambda outputs, y: outputs).learner(source)
    assert refusal.value.field == "loss"


def test_regression_on_several_targets() -> None:
    x = torch.randn(30, 5, generator=torch.Generator().manual_seed(0))
    y = torch.arange(60.0).view(30, 2) / 60
    source = from_arrays(x, y, x, y)
    module = nn.Linear(5, 2)
    learner = Module(module).learner(source)
    scores = learner.scores(learner.init(0)[None], source.x_test, source.y_test, {})
    expected = ((module(x) - y) ** 2).sum(1).mean() / 2
    torch.testing.assert_close(scores.loss[0], expected.detach())


def test_a_module_is_its_own_start_and_a_function_is_called_for_each_seed() -> None:
    source = data(3)
    module = nn.Linear(5, 3)
    given = Module(module).learner(source)
    own = flat(module.parameters()).detach()
    assert torch.equal(given.init(0), own)
    assert torch.equal(given.init(7), own)
    with torch.no_grad():
        module.weight.zero_()
    assert torch.equal(given.init(0), own)  # a copy, independent of the user's module

    class Net(nn.Linear):
        def __init__(self) -> None:
            super().__init__(5, 3)

    state = torch.random.get_rng_state()
    for make in (lambda: nn.Linear(5, 3), Net):
        made = Module(make).learner(source)
        assert torch.equal(made.init(3), Module(make).learner(source).init(3))
        assert (made.init(3) != made.init(4)).all()
    assert torch.equal(state, torch.random.get_rng_state())  # torch's generator is unchanged


class Backbone(nn.Module):
    """Random features that are not trained, and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Linear(5, 8).requires_grad_(False)
        self.shift = nn.Parameter(torch.tensor(2), requires_grad=False)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.features(x)) + self.shift)


def test_frozen_parameters_are_constants() -> None:
    source = data(3)
    learner = Module(Backbone).learner(source)
    assert list(learner.shapes) == ["head.weight", "head.bias"]
    assert learner.buffers() == {}
    stack = Batch.of(learner, source)
    frozen = copy.deepcopy(learner.module.features).double()  # type: ignore[attr-defined]
    for dtype in (
        torch.float64,
        torch.float32,
        torch.float64,
    ):  # casting loses nothing: they were float32
        gradient = torch.empty_like(stack.w, dtype=dtype)
        learner.gradient(stack.w.to(dtype), stack.x.to(dtype), stack.y, {}, stack.keys, gradient)
        assert gradient.dtype == dtype
    for i in range(3):
        head = nn.Linear(8, 3).double()
        for name, part in learner.unstack(stack.w[i]).items():
            head.get_parameter(name.removeprefix("head.")).data.copy_(part)
        F.cross_entropy(head(torch.tanh(frozen(stack.x[i])) + 2), stack.y[i]).backward()
        expected = flat_gradient(head)
        torch.testing.assert_close(gradient[i], expected, rtol=1e-10, atol=1e-12)


class TwiceAndNever(nn.Module):
    """A layer that is used twice, once transposed, and one that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = nn.Linear(5, 5)
        self.never = nn.Linear(2, 2)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.twice(x)) @ self.twice.weight)


class WithBranch(TwiceAndNever):
    """The same with a branch on values, which runs one device at a time."""

    def forward(self, x: Tensor) -> Tensor:
        if x.isnan().any():
            return x
        return super().forward(x)


@pytest.mark.parametrize("make", [TwiceAndNever, WithBranch])
@pytest.mark.filterwarnings("ignore::gossamer.SpeedWarning")
def test_gradients_of_parameters_that_are_used_twice_and_not_at_all(
    make: type[TwiceAndNever],
) -> None:
    source = data(3)
    learner = Module(make).learner(source)
    stack = Batch.of(learner, source)
    gradient = torch.full_like(stack.w, torch.nan)
    learner.gradient(stack.w, stack.x, stack.y, {}, stack.keys, gradient)
    for i, own in enumerate(plain_modules(learner, make, stack.w)):
        F.cross_entropy(own(stack.x[i]), stack.y[i]).backward()
        assert isinstance(own, make)
        for p in own.never.parameters():
            p.grad = torch.zeros_like(p)
        torch.testing.assert_close(gradient[i], flat_gradient(own), rtol=1e-10, atol=1e-12)


def test_a_module_in_float64_loses_nothing() -> None:
    module = Backbone().double()
    with torch.no_grad():
        module.features.weight.fill_(1 / 3)
        module.head.weight.fill_(1 / 3)
    module.register_buffer("third", torch.tensor(1 / 3, dtype=torch.float64))
    learner = Module(module).learner(data(3))
    assert learner.init(0)[0].item() == 1 / 3
    assert learner.buffers()["third"].item() == 1 / 3
    learned: Any = learner.module  # type: ignore[attr-defined]
    assert learned.features.weight[0, 0].item() == 1 / 3


def test_layers_of_cnn_and_mlp() -> None:
    source = data(3, (3, 4, 4))
    cnn = Cnn((4, 5), norm=True).learner(source)
    assert sorted(cnn.buffers()) == [
        f"{k}.{b}" for k in (1, 5) for b in ("num_batches_tracked", "running_mean", "running_var")
    ]
    assert cnn.parameters == (3 * 9 + 1) * 4 + 8 + (4 * 9 + 1) * 5 + 10 + (5 + 1) * 3
    assert Cnn((4, 5)).learner(source).buffers() == {}
    mlp = Mlp((7, 6), dropout=0.5).learner(source)
    assert mlp.parameters == 49 * 7 + 8 * 6 + 7 * 3
    stack = Batch.of(mlp, source)
    first = stack.gradient(mlp)
    stack.keys = stack.keys + 1
    assert (first != stack.gradient(mlp)).any()
