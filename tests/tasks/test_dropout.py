"""Dropout: each device and layer has masks of its own, by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support.learners import Batch, data
from torch import Tensor, nn
from torch.nn import functional as F

from gossamer import draws
from gossamer.errors import SpeedWarning
from gossamer.tasks import Module


class Masks(nn.Module):
    """A module whose gradient is its masks: one parameter per element of each dropout of ones."""

    def __init__(
        self, drop: Callable[[Any, Tensor], Tensor], layers: int, shape: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(layers, *shape))
        self.drop = drop
        self.layer = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        dropped = []
        for scale in self.scale:
            dropped.append(self.drop(self, scale.expand(len(x), *scale.shape)))
        return torch.stack(dropped, 1).flatten(1)


def masks(
    drop: Callable[[Any, Tensor], Tensor],
    keys: Tensor,
    layers: int = 1,
    shape: tuple[int, ...] = (4000,),
    p: float = 0.5,
) -> Tensor:
    """Return the masks as 0 and 1: [devices, layers, …shape]."""
    source = data(None, (1,))
    learner = Module(Masks(drop, layers, shape), loss=lambda outputs, y: outputs.sum(1)).learner(
        source
    )
    w = learner.init(0).double().expand(len(keys), -1)
    one = torch.ones(len(keys), 1, 1, dtype=torch.float64)
    found = torch.empty_like(w, memory_format=torch.contiguous_format)
    learner.gradient(w, one, one[..., 0], {}, keys, found)
    found *= 1 - p
    assert torch.isin(found, torch.tensor([0.0, 1.0], dtype=torch.float64)).all()
    torch.testing.assert_close(
        learner.loss(w, one, one[..., 0], {}, keys) * (1 - p), found.sum(1)
    )  # the loss has the same masks
    plain = learner.scores(w, one[0], one[0, :, 0], {}).loss
    torch.testing.assert_close(
        plain, torch.full_like(plain, math.prod((layers, *shape)))
    )  # and evaluation has none
    return found.view(len(keys), layers, *shape)


KEYS = torch.from_numpy(draws.bits(0, "keys", np.arange(4)).view(np.int64))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_right_share(p: float) -> None:
    kept = masks(lambda own, x: F.dropout(x, p, own.training), KEYS, layers=3, p=p)
    # 4,000 elements per mask: five standard deviations
    assert ((kept.mean(-1) - (1 - p)).abs() < 5 * math.sqrt(p * (1 - p) / 4000)).all()
    # Masks, and neighbouring elements, are uncorrelated.
    rows = (kept - kept.mean(-1, keepdim=True)).reshape(12, -1)
    rows = rows / rows.norm(dim=1, keepdim=True)
    assert ((rows @ rows.T).fill_diagonal_(0).abs() < 5 / math.sqrt(4000)).all()
    assert ((rows[:, 1:] * rows[:, :-1]).sum(1).abs() < 5 / math.sqrt(4000)).all()


def test_dropout_is_by_name() -> None:
    layer = masks(lambda own, x: own.layer(x), KEYS, layers=3)
    assert torch.equal(layer, masks(lambda own, x: own.layer(x), KEYS, layers=3))
    assert torch.equal(
        layer[[2]], masks(lambda own, x: own.layer(x), KEYS[[2]], layers=3)
    )  # alone as in a stack
    assert torch.equal(layer, masks(lambda own, x: F.dropout(x, 0.5, own.training), KEYS, layers=3))
    assert torch.equal(
        layer,
        masks(
            lambda own, x: F.dropout(x.clone(), training=own.training, inplace=True), KEYS, layers=3
        ),
    )
    with pytest.warns(SpeedWarning, match=r"trains one device at a time.*\.item\(\)"):
        in_turn = masks(lambda own, x: own.layer(x) * (x.max().item() > 0), KEYS, layers=3)
    assert torch.equal(layer, in_turn)  # a module that cannot run stacked has the same masks
    flat = layer.reshape(12, -1)
    # Every device and every layer has its own mask.
    for i in range(12):
        for j in range(i):
            assert (flat[i] != flat[j]).any()


@pytest.mark.parametrize(
    ("kind", "shape"),
    [(nn.Dropout1d, (64, 5)), (nn.Dropout2d, (64, 2, 3)), (nn.Dropout3d, (64, 2, 1, 2))],
)
def test_channelwise_dropout_drops_whole_channels(
    kind: type[nn.Module], shape: tuple[int, ...]
) -> None:
    channel = kind(0.5)

    def drop(own: nn.Module, x: Tensor) -> Tensor:
        return channel.train(own.training)(x)

    kept = masks(drop, KEYS, layers=2, shape=shape).flatten(3)
    assert torch.equal(kept, kept[..., :1].expand_as(kept))
    assert 0.3 < kept.mean() < 0.7


def test_a_layer_under_two_names_drops_in_both() -> None:
    drop = nn.Dropout(0.5)
    module = nn.Sequential(nn.Linear(5, 40), drop, nn.Linear(40, 40), drop, nn.Linear(40, 3))
    source = data(3)
    learner = Module(module).learner(source)
    stack = Batch.of(learner, source)
    assert torch.equal(stack.gradient(learner), stack.gradient(learner))
    first = stack.gradient(learner)
    stack.keys = stack.keys + 1
    assert (first != stack.gradient(learner)).any()
    # The user's module is unchanged.
    for layer in module:
        if isinstance(layer, nn.Dropout):
            assert layer.p == 0.5


def test_dropping_everything_gives_zeros() -> None:
    source = data(3)
    learner = Module(nn.Sequential(nn.Dropout(1.0), nn.Linear(5, 3))).learner(source)
    stack = Batch.of(learner, source)
    gradient = learner.unstack(stack.gradient(learner))
    assert (gradient["1.weight"] == 0).all()
    assert gradient["1.bias"].isfinite().all()


@pytest.mark.parametrize("layer", [True, False])
def test_convolutions_with_dropout_draw_by_name(layer: bool) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, 4, 3)
            self.drop = nn.Dropout(0.5)
            self.head = nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x).flatten(1)
            if not layer:
                x = F.dropout(x, 0.5, self.training)
            elif len(x) > 2:  # not met when the module is tried on two samples
                x = self.drop(x)
            return self.head(x)

    source = data(3, shape=(3, 4, 4))
    learner = Module(Net()).learner(source)
    stack = Batch.of(learner, source)
    first = stack.gradient(learner)
    torch.manual_seed(1)
    assert torch.equal(stack.gradient(learner), first)
    stack.keys = stack.keys + 1
    assert (stack.gradient(learner) != first).any()
