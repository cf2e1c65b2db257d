"""A forward pass of a module in which every dropout is drawn by name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from gossamer.errors import InputError
from gossamer.tasks.random_ops import element_bits, top_31_bits


class ForwardPass(TorchFunctionMode):
    """The pass of one device. Dropout masks are the same on every engine.

    A mask is a hash of the device's key, the number of the dropout within the pass, and the
    element. It holds for layers and for calls of `F.dropout`.

    Args:
        key: 64 random bits of the device; None in evaluation, where no mask may be drawn.
        stacked: The pass is that of many devices at once. Its linear layers then use a product
            whose gradient is computed faster.
        plain_attention: Compute attention by matrix products. torch's own kernel has no batching
            rule.
    """

    def __init__(
        self, key: Tensor | None, stacked: bool = False, plain_attention: bool = False
    ) -> None:
        super().__init__()
        self.key = key
        self.stacked = stacked
        self._attention: AbstractContextManager[None] = nullcontext()
        if plain_attention:
            self._attention = sdpa_kernel(SDPBackend.MATH)
        self._drawn = 0  # dropouts of this pass so far

    def __enter__(self) -> ForwardPass:
        self._attention.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._attention.__exit__(*error)

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is F.dropout:
            return self._dropout(False, *args, **kwargs)
        if function in (F.dropout1d, F.dropout2d, F.dropout3d):
            return self._dropout(True, *args, **kwargs)
        if function is F.linear and self.stacked and self.key is not None:
            return _stacked_linear(*args, **kwargs)
        return function(*args, **kwargs)

    def next_dropout(self, p: float) -> Callable[[Tensor, Tensor], tuple[Tensor]]:
        """Return the next dropout of the pass as a function of a device's key and values.

        Args:
            p: Probability that an element is dropped.
        """

        def dropout(key: Tensor, values: Tensor) -> tuple[Tensor]:
            self.key = key
            return (self._dropout(False, values, p),)

        return dropout

    def _dropout(
        self,
        channels: bool,
        input: Tensor,
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> Tensor:
        if not training or p == 0:
            return input
        if self.key is None:
            raise InputError(
                "module", "F.dropout in evaluation", "F.dropout(x, p, training=self.training)"
            )
        shape = input.shape
        if channels:
            shape = torch.Size((*input.shape[:2], *[1] * (input.dim() - 2)))
        bits = element_bits(self.key + self._drawn, shape.numel()).view(shape)
        self._drawn += 1
        kept = top_31_bits(bits) >= int(p * 2.0**31)
        scale = kept.to(input.dtype) / max(1 - p, 2.0**-31)
        if inplace:
            return input.mul_(scale)
        return input * scale


def _stacked_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute F.linear by a product whose gradient has the layout of the weights.

    For a stack of devices that is much faster than the gradient of F.linear itself.
    """
    if input.dim() != 2 or (bias is not None and bias.dim() != 1):
        return F.linear(input, weight, bias)
    if bias is None:
        return (weight @ input.mT).mT.contiguous()
    return torch.addmm(bias[:, None], weight, input.mT).mT.contiguous()
