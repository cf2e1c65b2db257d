"""Gradients written by a backward pass against those of `torch.autograd.grad`."""

from __future__ import annotations

import torch
from torch import Tensor

from gossamer.tasks.gradients import WrittenGradients


def value(parameters: dict[str, Tensor]) -> Tensor:
    """Use one parameter transposed, one twice, and one not at all."""
    product = parameters["twice"] @ parameters["transposed"].mT
    return (product.tanh() * parameters["twice"].sum()).sum()


def test_gradients_are_written_to_parts_of_a_stack() -> None:
    generator = torch.Generator().manual_seed(0)
    parameters = {}
    for name in ("transposed", "twice", "unused"):
        drawn = torch.randn(3, 4, 4, generator=generator, dtype=torch.float64)
        parameters[name] = drawn.requires_grad_()
    expected = torch.autograd.grad(
        value(parameters), list(parameters.values()), allow_unused=True, materialize_grads=True
    )

    stack = torch.full((3, 48), torch.nan, dtype=torch.float64)
    out = {}
    for number, name in enumerate(parameters):
        out[name] = stack[:, 16 * number : 16 * (number + 1)].view(3, 4, 4)
    detached = {name: p.detach() for name, p in parameters.items()}
    written = WrittenGradients(detached, out)
    value(written.parameters).backward()
    written.finish()
    for part, gradient in zip(out.values(), expected, strict=True):
        torch.testing.assert_close(part, gradient, rtol=1e-14, atol=1e-14)
