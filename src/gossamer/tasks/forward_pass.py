"""A forward pass of a module in which every dropout is drawn by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from gossamer.errors import InputError
from gossamer.tasks import stacked_layers
from gossamer.tasks.random_ops import element_bits, top_31_bits


class ForwardPass(TorchFunctionMode):
    """The pass of one device. Dropout masks are the same on every engine.

    A mask is a hash of the device's key, the number of the dropout within the pass, and the
    element. It holds for layers and for calls of `F.dropout`.

    Args:
        key: 64 random bits of the device; None in evaluation, where no mask may be drawn.
        stacked: The pass is that of many devices at once. Its linear layers then use a product
            whose gradient is computed faster.
        stacked_attention: Compute attention as well for many devices at once.
    """

    def __init__(
        self, key: Tensor | None, stacked: bool = False, stacked_attention: bool = False
    ) -> None:
        super().__init__()
        self.key = key
        self.stacked = stacked
        self.stacked_attention = stacked_attention
        self.met_dropout = False
        self._drawn = 0  # dropouts of this pass so far

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is F.dropout:
            return self._dropout(False, *args, **kwargs)
        if function in (F.dropout1d, F.dropout2d, F.dropout3d):
            return self._dropout(True, *args, **kwargs)
        if function is F.linear and self.stacked and self.key is not None:
            return stacked_layers.linear(*args, **kwargs)
        if self.stacked_attention:
            if function is F.scaled_dot_product_attention:
                return stacked_layers.attention(*args, **kwargs)
            if function is F.multi_head_attention_forward:
                found = stacked_layers.multi_head_attention(*args, **kwargs)
                if found is not None:
                    return found
                with stacked_layers.ATTENTION_BY_PRODUCTS:
                    return function(*args, **kwargs)
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
        self.met_dropout = True
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
