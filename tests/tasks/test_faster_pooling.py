"""Pooling in another order and layout: the same bits, and only where nothing can tell."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from support.learners import Batch, flat_gradient, plain_modules
from torch import Tensor, nn
from torch.nn import functional as F

from gossamer.tasks import Data, Module, from_arrays
from gossamer.tasks.faster_pooling import speed_up


class Slices(nn.Module):
    """A network that uses the layers of its Sequential one by one as well."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Linear(36, 3)

    def forward(self, x: Tensor) -> Tensor:
        first = self.features[:2](x).mean((2, 3))
        return self.head(self.features(x).flatten(1)) + first[:, :3]


class Functions(nn.Module):
    """A network that pools after a function, and flattens."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(36, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.flatten(self.pool(F.relu(self.first(x))), 1))


def overlapping() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4, track_running_stats=False),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
        nn.Conv2d(4, 5, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.Flatten(),
        nn.Linear(20, 3),
    )


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "overlapping": overlapping,
    "slices": Slices,
    "functions": Functions,
}


def images() -> Data:
    generator = torch.Generator().manual_seed(0)
    # Whole numbers: many elements of a window are equal, and many windows have none above zero.
    x = torch.randint(-2, 3, (60, 3, 8, 8), generator=generator).float()
    y = torch.randint(3, (60,), generator=generator)
    return from_arrays(x, y, x[:5], y[:5])


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("channels_last", [False, True])
def test_gradients_are_equal_bit_for_bit(name: str, channels_last: bool) -> None:
    torch.manual_seed(0)
    module = NETWORKS[name]()
    with torch.no_grad():
        for p in module.parameters():
            p.mul_(8).round_().div_(8)
    data = images()
    x = data.x
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    parameters = list(module.parameters())
    expected = torch.autograd.grad(F.cross_entropy(module(x), data.y), parameters)
    speed_up(module, channels_last)
    found = torch.autograd.grad(F.cross_entropy(module(x), data.y), parameters)
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_learner_computes_the_gradient_of_its_module(name: str, dtype: torch.dtype) -> None:
    data = images()
    torch.manual_seed(0)
    make = NETWORKS[name]
    module = make()
    learner = Module(module).learner(data)
    stack = Batch.of(learner, data)
    w = stack.w.to(dtype)
    gradient = torch.empty_like(w)
    learner.gradient(w, stack.x.to(dtype), stack.y, {}, stack.keys, gradient)
    for i, own in enumerate(plain_modules(learner, make, stack.w)):
        F.cross_entropy(own(stack.x[i]), stack.y[i]).backward()
        expected = flat_gradient(own).to(dtype)
        torch.testing.assert_close(gradient[i], expected, rtol=1e-3, atol=1e-4)


def test_layers_that_others_look_at_keep_their_order() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2))
    seen = []
    module[1].register_forward_hook(lambda layer, inputs, output: seen.append(output.shape))
    speed_up(module, channels_last=False)
    module(torch.zeros(1, 3, 8, 8))
    assert seen == [(1, 4, 6, 6)]
    # The output of the first layer may be used elsewhere, and a ReLU in place would change it.
    for first in (nn.Identity(), nn.Tanh()):
        module = nn.Sequential(first, nn.ReLU(inplace=True), nn.MaxPool2d(2))
        speed_up(module, channels_last=False)
        assert "forward" not in vars(module)


def test_layers_stay_where_they_are() -> None:
    module = Slices()
    before = list(module.state_dict())
    speed_up(module, channels_last=True)
    assert list(module.state_dict()) == before
    assert type(module.features[1]) is nn.ReLU
