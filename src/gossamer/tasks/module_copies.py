"""Copies of modules: one per thread, without what `torch.compile` adds, with shared constants."""

from __future__ import annotations

import copy
import threading
from typing import Any

import torch
from torch import Tensor, nn

_COMPILED = "_orig_mod"  # the attribute in which torch.compile keeps the original module


def trained(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters that are trained, by name, not copied.

    Args:
        module: The module.
    """
    return {name: p.detach() for name, p in _parameters(module).items() if p.requires_grad}


def frozen(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters that are constants, by name, not copied.

    Args:
        module: The module.
    """
    return {name: p.detach() for name, p in _parameters(module).items() if not p.requires_grad}


class Constants:
    """The frozen parameters of a module, one copy for all threads.

    Args:
        parameters: The parameters by name.
    """

    def __init__(self, parameters: dict[str, Tensor]) -> None:
        self._parameters = parameters
        self._lock = threading.Lock()
        self._mode: tuple[torch.device, torch.dtype] | None = None
        self._cast: dict[str, Tensor] = {}

    def cast(self, device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
        """Return them on a torch device in a dtype: the last copy, or the original if it fits.

        Args:
            device: The torch device.
            dtype: The type of floating-point numbers.
        """
        with self._lock:
            if self._mode != (device, dtype):
                self._cast = {
                    name: cast(p, dtype).to(device) for name, p in self._parameters.items()
                }
                self._mode = (device, dtype)
            return self._cast


def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return floating-point numbers in another type, and other tensors as they are.

    Args:
        x: The tensor.
        dtype: The type.
    """
    return x.to(dtype) if x.is_floating_point() else x


def copied(module: nn.Module, constants: dict[str, Tensor]) -> nn.Module:
    """Copy a module, except for its frozen parameters, which are those that are given.

    Compiled modules are replaced by the modules that they were made from: they would be compiled
    again for every device and shape.

    Args:
        module: The module.
        constants: Its frozen parameters, by name.
    """
    found: dict[int, Any] = {}
    for name, p in _parameters(module).items():
        if name in constants:
            found[id(p)] = nn.Parameter(constants[name], requires_grad=False)
    for part in reversed(list(module.modules())):  # inner ones first
        original = getattr(part, _COMPILED, None)
        if original is not None:
            found[id(part)] = copy.deepcopy(original, found)
    return copy.deepcopy(module, found)


def places(module: nn.Module) -> dict[str, str]:
    """Return the name of the tensor in each place of a module: tied weights are in two places.

    functional_call could tie them itself, but then breaks a layer that has two names.

    Args:
        module: The module.
    """
    first: dict[int, str] = {}
    found = {}
    for prefix, part in module.named_modules():  # each layer once, under its first name
        tensors = (
            *part.named_parameters(recurse=False, remove_duplicate=False),
            *part.named_buffers(recurse=False, remove_duplicate=False),
        )
        for name, tensor in tensors:
            place = f"{prefix}.{name}" if prefix else name
            found[place] = first.setdefault(id(tensor), place)
    return found


def _parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters by the names that they have without torch.compile."""
    return {name.replace(f"{_COMPILED}.", ""): p for name, p in module.named_parameters()}
