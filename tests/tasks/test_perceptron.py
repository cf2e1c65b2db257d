"""Perceptrons without torch.func, and images with the channels last."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from support.learners import Batch, data, flat
from torch import Tensor, nn
from torch.nn import functional as F

from gossamer._core.threads import run_in_threads
from gossamer.tasks import Module, modules
from gossamer.tasks.losses import LossFunction
from gossamer.tasks.perceptron import Perceptron


def tied() -> nn.Module:
    layer = nn.Linear(6, 6)
    module = nn.Sequential(
        nn.Flatten(), layer, nn.Tanh(), layer, nn.Sigmoid(), nn.Linear(6, 6), nn.Linear(6, 3)
    )
    module[5].weight = layer.weight
    return module


PERCEPTRONS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 3)),
    "no bias": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(6, 4, bias=False), nn.ELU(), nn.Flatten(), nn.Linear(4, 3)
    ),
    "in each other": lambda: nn.Sequential(
        nn.Sequential(nn.Flatten(), nn.Linear(6, 4)), nn.ReLU(True), nn.Linear(4, 5)
    ),
    "tied": tied,
    "dropout": lambda: nn.Sequential(
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(6, 8), nn.Dropout(0), nn.Dropout(), nn.Linear(8, 3)
    ),
}


@pytest.mark.parametrize("loss", [None, nn.CrossEntropyLoss(reduction="none")])
@pytest.mark.parametrize("kind", PERCEPTRONS)
def test_a_perceptron_equals_the_same_module_under_torch_func(
    kind: str, loss: LossFunction | None
) -> None:
    source = data(3, (2, 3))
    module = PERCEPTRONS[kind]()
    fast = Module(module, loss).learner(source)
    slow = Module(module, loss).learner(source)
    assert isinstance(fast, modules.ModuleLearner)
    assert isinstance(slow, modules.ModuleLearner)
    assert fast._perceptron is not None
    slow._perceptron = None
    stack = Batch.of(fast, source, devices=6)
    torch.testing.assert_close(stack.gradient(fast), stack.gradient(slow), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(stack.loss(fast, {}), stack.loss(slow, {}), rtol=1e-10, atol=1e-12)
    rows = torch.empty_like(stack.w)
    threads = torch.get_num_threads()

    def one(i: slice) -> None:
        fast.gradient(stack.w[i], stack.x[i], stack.y[i], {}, stack.keys[i], rows[i])

    torch.set_num_threads(2)
    try:
        run_in_threads([partial(one, slice(i, i + 1)) for i in range(6)])
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(rows, stack.gradient(fast), rtol=1e-10, atol=1e-12)


class Twice(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


def changed(change: Callable[[Any], object]) -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(6, 3))
    change(module[1])
    return module


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Flatten(), Twice(6, 3)),
        nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.Softmax(1), nn.Linear(4, 3)),
        nn.Sequential(nn.Linear(3, 3), nn.Flatten(), nn.Linear(6, 3)),
        nn.Sequential(nn.Flatten(1, 2), nn.Linear(6, 3)),
        changed(lambda layer: layer.register_forward_hook(lambda _, __, output: 2 * output)),
        changed(lambda layer: layer.bias.requires_grad_(False)),
        changed(lambda layer: setattr(layer, "forward", lambda x: x[:, :3] * layer.weight[0, 0])),
        changed(lambda layer: nn.utils.parametrizations.weight_norm(layer)),
    ],
)
def test_other_modules_are_not_taken_for_a_perceptron(module: nn.Module) -> None:
    assert Perceptron.find(module, data(3, (2, 3))) is None


class Viewed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)
        self.out = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.max_pool2d(self.conv(x), 2).view(len(x), -1))


@pytest.mark.parametrize(
    ("module", "channels", "last"),
    [(Viewed(), 2, False)]
    + [
        (
            nn.Sequential(
                nn.Conv2d(c, 4, 3), nn.MaxPool2d(2), nn.Dropout(0), nn.Flatten(), nn.Linear(16, 3)
            ),
            c,
            True,
        )
        for c in (1, 2)
    ],
)
def test_images_are_channels_last_where_the_module_accepts_it(
    module: nn.Module, channels: int, last: bool
) -> None:
    source = data(3, (channels, 6, 6))
    learner = Module(module).learner(source)
    w = learner.init(0)[None]
    x = source.x[None, :8]
    y = source.y[None, :8]
    found = torch.empty(1, learner.parameters)
    seen: list[bool] = []
    forward = nn.Conv2d.forward
    with pytest.MonkeyPatch.context() as patch:

        def noted(self: nn.Conv2d, x: Tensor) -> Tensor:
            seen.append(x.stride(1) == 1)
            return forward(self, x)

        patch.setattr(nn.Conv2d, "forward", noted)
        learner.gradient(w, x, y, {}, torch.zeros(1, dtype=torch.int64), found)
    assert seen == [last]
    slopes = torch.autograd.grad(F.cross_entropy(module(x[0]), y[0]), list(module.parameters()))
    torch.testing.assert_close(found[0], flat(slopes), rtol=1e-5, atol=1e-6)
