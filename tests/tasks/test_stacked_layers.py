"""Layers of a stack equal those of each device alone, in values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional as F

from gossamer.tasks import stacked_layers
from gossamer.tasks.forward_pass import ForwardPass

DEVICES = 3


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def check(
    stacked: Callable[..., Tensor], plain: Callable[..., Tensor], in_dims: Any, *given: Tensor
) -> None:
    """Compare a stack with a loop over the devices."""
    found = vmap(stacked, in_dims=in_dims)(*given)
    rows = []
    for device in range(DEVICES):
        own = [
            t if dim is None else t.select(dim, device)
            for t, dim in zip(given, in_dims, strict=True)
        ]
        rows.append(plain(*own))
    expected = torch.stack(rows)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    weights = torch.linspace(-1, 1, found.numel(), dtype=torch.float64).view_as(found)
    trained = [t for t in given if t.requires_grad]
    slopes = torch.autograd.grad((found * weights).sum(), trained)
    for slope, other in zip(
        slopes, torch.autograd.grad((expected * weights).sum(), trained), strict=True
    ):
        torch.testing.assert_close(slope, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("batched", [(0, 0, 0), (0, None, None), (0, None, 0), (1, 0, None)])
def test_linear_layers_of_sequences(batched: tuple[int | None, ...]) -> None:
    """A weight that all devices share, such as that of a frozen base, is not expanded."""
    shapes = [(2, 4, 5), (6, 5), (6,)]
    given = []
    for shape, dim in zip(shapes, batched, strict=True):
        size = list(shape)
        if dim is not None:
            size.insert(dim, DEVICES)
        given.append(normal(*size))
    check(stacked_layers.linear, F.linear, batched, *given)
    if batched[1] == 0:
        check(stacked_layers.linear, F.linear, batched[:2], *given[:2])


@pytest.mark.parametrize("shape", [(4, 6), (2, 4, 6), (2, 1, 4, 6), (2, 2, 4, 6)])
@pytest.mark.parametrize("batched", [0, None])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_attention_with_masks(shape: tuple[int, ...], batched: int | None, kind: str) -> None:
    size = shape if batched is None else (DEVICES, *shape)
    mask = torch.randn(size, dtype=torch.float64)
    if kind == "bool":
        mask = mask > -1
        mask[..., 0] = True
    q, k, v = normal(DEVICES, 2, 2, 4, 8), normal(DEVICES, 2, 2, 6, 8), normal(DEVICES, 2, 2, 6, 8)
    check(
        stacked_layers.attention,
        F.scaled_dot_product_attention,
        (0, 0, 0, batched),
        q,
        k,
        v,
        mask,
    )


def test_causal_attention() -> None:
    q, k, v = (normal(DEVICES, 2, 2, 4, 8) for _ in range(3))

    def stacked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return stacked_layers.attention(q, k, v, is_causal=True, scale=0.3)

    def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)

    check(stacked, plain, (0, 0, 0), q, k, v)


@pytest.mark.parametrize(
    "call",
    [
        lambda m, x: m(x, x, x, need_weights=False)[0],
        lambda m, x: m(x, x, x)[0],
        lambda m, x: m(x, x * 2, x, need_weights=False)[0],
        lambda m, x: m(
            x, x, x, need_weights=False, key_padding_mask=torch.tensor([[False, True, False]] * 2)
        )[0],
        lambda m, x: m(
            x, x, x, need_weights=False, attn_mask=torch.triu(torch.ones(3, 3), 1).bool()
        )[0],
    ],
)
def test_multi_head_attention(call: Callable[[nn.Module, Tensor], Tensor]) -> None:
    """Also as torch computes it itself: with weights, of several tensors, with padding."""
    torch.manual_seed(0)
    module = nn.MultiheadAttention(8, 2, batch_first=True).double()
    x = normal(DEVICES, 2, 3, 8)
    flash = torch.backends.cuda.flash_sdp_enabled()

    def stacked(x: Tensor) -> Tensor:
        with ForwardPass(torch.tensor(0), stacked=True, stacked_attention=True):
            return call(module, x)

    check(stacked, lambda x: call(module, x), (0,), x)
    assert torch.backends.cuda.flash_sdp_enabled() == flash
