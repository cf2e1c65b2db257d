"""Run a function of one device for a whole stack of devices: at once by vmap, or one by one.

A stack is a tensor whose leading axis is the devices, or a dict of such tensors.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

Tensors = Tensor | dict[str, Tensor]


def run_stacked(
    function: Callable[..., tuple[Tensors, ...]], *stacks: Tensors, randomness: str = "error"
) -> Any:
    """Run a function for all devices at once.

    Args:
        function: Takes one device's part of each stack; returns a tuple of tensors or dicts.
        stacks: The arguments of all devices.
        randomness: What vmap does with random operations: "error", or "different" for each device.

    Returns:
        A tuple like the function's, with the devices as leading axis.

    Raises:
        RuntimeError: If torch cannot run the function stacked, or it draws random values.

    Example:
        >>> run_stacked(lambda x: (2 * x,), torch.tensor([1.0, 2.0]))
        (tensor([2., 4.]),)
    """
    structure: list[Tensors] = []

    # vmap takes dicts too, but then its own overhead is as large as a small model.
    def flat_function(*tensors: Tensor) -> tuple[Tensor, ...]:
        structure[:] = function(*_unflatten(stacks, tensors))
        return tuple(_flatten(structure))

    results = vmap(flat_function, randomness=randomness)(*_flatten(stacks))
    return _unflatten(structure, results)


@cache
def silence_layout_warning() -> None:
    """Let torch warn here, unseen, of gradients that are parts of a stack.

    It warns once per process that their layout may be slow. Here it is faster than to copy them.
    """
    leaf = torch.zeros(2, 2)[:, :1].requires_grad_()
    leaf.grad = torch.zeros(2, 2)[:, :1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        leaf.sum().backward()


def run_one_by_one(function: Callable[..., tuple[Tensors, ...]], *stacks: Tensors) -> Any:
    """Do the same for one device after the other, for functions that cannot run stacked.

    Args:
        function: As in `run_stacked`.
        stacks: As in `run_stacked`.

    Returns:
        As `run_stacked`.
    """
    flat = _flatten(stacks)
    results = []
    for device in range(len(flat[0])):
        own = [x[device] for x in flat]
        results.append(function(*_unflatten(stacks, own)))
    columns = zip(*map(_flatten, results), strict=True)
    return _unflatten(results[0], map(torch.stack, columns))


def _flatten(parts: Iterable[Tensors]) -> list[Tensor]:
    flat: list[Tensor] = []
    for part in parts:
        if isinstance(part, dict):
            flat += part.values()
        else:
            flat.append(part)
    return flat


def _unflatten(like: Iterable[Tensors], tensors: Iterable[Tensor]) -> tuple[Tensors, ...]:
    """Return the tensors in the structure that they had before `_flatten`."""
    remaining = iter(tensors)
    parts: list[Tensors] = []
    for part in like:
        if isinstance(part, dict):
            parts.append({name: next(remaining) for name in part})
        else:
            parts.append(next(remaining))
    return tuple(parts)
