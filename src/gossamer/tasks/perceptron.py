"""Plain perceptrons: a stack of them needs batched products alone, and not torch.func.

The gradient of a small perceptron takes just over half the time that way.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gossamer.tasks.data import Data
from gossamer.tasks.forward_pass import ForwardPass
from gossamer.tasks.module_trial import has_hooks
from gossamer.tasks.stacking import run_stacked

_ELEMENTWISE = (
    nn.Identity,
    nn.ReLU,
    nn.LeakyReLU,
    nn.ELU,
    nn.GELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Tanh,
    nn.Softplus,
)
_KNOWN = (nn.Flatten, nn.Linear, nn.Dropout, *_ELEMENTWISE)


class Perceptron:
    """The layers of a plain perceptron.

    Args:
        module: The module that has the layers.
        layers: Its layers, in order.
    """

    def __init__(self, module: nn.Module, layers: list[nn.Module]) -> None:
        self._layers = layers
        self._names = {id(p): name for name, p in module.named_parameters()}

    @classmethod
    def find(cls, module: nn.Module, data: Data) -> Perceptron | None:
        """Return the perceptron that a module is, or None if it may do anything else.

        It must consist of known layers without hooks or methods of their own, and all of its
        parameters must be trained.

        Args:
            module: Any module.
            data: The data, whose samples must be flat or be flattened first.
        """
        parts = [part for _, part in module.named_modules(remove_duplicate=False)]
        layers = [part for part in parts if type(part) is not nn.Sequential]
        flat = len(data.shape) == 1 or (bool(layers) and isinstance(layers[0], nn.Flatten))
        trained = all(p.requires_grad for p in module.parameters())
        known = all(_is_known(layer) for layer in layers)
        if flat and trained and known and not any(has_hooks(part) for part in parts):
            return cls(module, layers) if layers else None
        return None

    def outputs(self, parameters: dict[str, Tensor], x: Tensor, keys: Tensor) -> Tensor:
        """Return the outputs of all devices: [devices, batch, outputs].

        Args:
            parameters: The parameters by name: [devices, …] each.
            x: Batches [devices, batch, …].
            keys: 64 random bits per device, for dropout.
        """
        values = x.flatten(2).transpose(1, 2)  # [devices, units, batch]
        forward = ForwardPass(None)
        for layer in self._layers:
            if isinstance(layer, nn.Linear):
                values = self._linear(layer, parameters, values)
            elif isinstance(layer, nn.Dropout):
                dropout = forward.next_dropout(layer.p)
                (kept,) = run_stacked(dropout, keys, values.transpose(1, 2))
                values = kept.transpose(1, 2)
            elif not isinstance(layer, nn.Flatten):
                values = layer(values)
        return values.transpose(1, 2)

    def _linear(self, layer: nn.Linear, parameters: dict[str, Tensor], values: Tensor) -> Tensor:
        weight = parameters[self._names[id(layer.weight)]]
        own_bias: Tensor | None = layer.bias
        if own_bias is None:
            return torch.bmm(weight, values)
        bias = parameters[self._names[id(own_bias)]][..., None]
        return torch.baddbmm(bias, weight, values)


def _is_known(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) != (1, -1):
        return False
    return type(layer) in _KNOWN
