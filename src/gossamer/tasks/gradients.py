"""Gradients that a backward pass writes where they are wanted."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor


class WrittenGradients:
    """Parameters whose gradients are written to parts of a stack in a backward pass.

    Each gradient is released as soon as it is written, and is not copied into a layout first.

    Args:
        parameters: The parameters by name.
        out: Where their gradients are written, by the same names.
    """

    def __init__(self, parameters: dict[str, Tensor], out: dict[str, Tensor]) -> None:
        self._missing = dict(out)
        differentiable = torch.zeros((), requires_grad=True)
        self.parameters = {}
        for name, p in parameters.items():
            self.parameters[name] = _Written.apply(differentiable, p, partial(self._write, name))

    def _write(self, name: str, gradient: Tensor) -> None:
        self._missing.pop(name).copy_(gradient)

    def finish(self) -> None:
        """Write the gradients of parameters that were not used."""
        for part in self._missing.values():
            part.zero_()


class _Written(torch.autograd.Function):
    """The identity, which passes the gradient of its output to a function."""

    @staticmethod
    def forward(ctx: Any, differentiable: Tensor, p: Tensor, write: Any) -> Tensor:
        ctx.write = write
        return p.view_as(p)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        ctx.write(gradients[0])
        return None, None, None
