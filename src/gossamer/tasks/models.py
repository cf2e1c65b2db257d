"""Models of torch modules: the user's own, a perceptron, a small convolutional network."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from gossamer import draws
from gossamer._core import checks
from gossamer._core.arguments import checked, conversion
from gossamer._core.memory import refuse_too_large
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.tasks.data import Data
from gossamer.tasks.learner import Learner
from gossamer.tasks.losses import Loss, LossFunction
from gossamer.tasks.modules import ModuleLearner
from gossamer.tasks.task import Model

_BYTES = 4  # size of a float32 parameter
_SMALLEST_IMAGE = 4  # pixels: two poolings halve an image twice


@checked
@dataclass(frozen=True)
class Module:
    """A model that is any `torch.nn.Module`.

    The module gets a batch [batch, …] and returns outputs: [batch, classes] for labels,
    [batch, classes, …] or [batch, …, classes] for a class per position, else as many values as a
    target has. Of a tuple the first is taken, of a dict or an object its `logits`. Its trained
    parameters are mixed; its buffers stay with their device; frozen parameters are constants.
    Buffers and frozen parameters start as in the module that is given, or made first, whatever the
    seed.

    Args:
        module: A module, whose present parameters are the start of every seed; or a function
            without arguments that makes one, which is called once per seed.
        loss: A loss such as `Huber()`, or a function of (outputs, targets) that returns one value
            per sample or their mean. Default: the cross-entropy for classes, the binary
            cross-entropy for yes or no, else half the squared error.

    Raises:
        InputError: If it is neither a module nor a function.

    Example:
        >>> Module(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))  # doctest: +ELLIPSIS
        Module(module=<function ...>, loss=None)
    """

    module: nn.Module | Callable[[], nn.Module]
    loss: Loss | LossFunction | None = None

    def __post_init__(self) -> None:
        if not callable(self.module):
            raise InputError(
                "module", self.module, "a torch.nn.Module, or a function that makes one"
            )

    def learner(self, data: Data) -> Learner:
        if isinstance(self.module, nn.Module):
            return ModuleLearner(self.module, self.loss, data)
        make = self.module
        return ModuleLearner(
            _make_seeded(make, 0), self.loss, data, lambda seed: _make_seeded(make, seed)
        )


@conversion(Model)
def _model_of(field: str, value: Any) -> Any:
    """Make a model from a torch module; name the class for a function that makes one."""
    if isinstance(value, nn.Module):
        return Module(value)
    is_module_class = isinstance(value, type) and issubclass(value, nn.Module)
    if is_module_class or inspect.isfunction(value):
        accepted = "gs.Module(function), whose function makes a torch.nn.Module"
        raise InputError(field, value, accepted)
    return value


def _make_seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Make a module with torch's generator at a named seed, and restore the generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draws.subseed(seed, "start"))
        made = make()
    if not isinstance(made, nn.Module):
        raise InputError("module", made, "a function that makes a torch.nn.Module")
    return made


@register("model", "mlp")
@dataclass(frozen=True)
class Mlp:
    """A multi-layer perceptron with ReLU.

    Args:
        hidden: Units of each hidden layer.
        dropout: Probability of dropout after each hidden layer.
        loss: The loss. Default: as in `Module`.

    Raises:
        InputError: If a layer has no units, or dropout is not from 0 to below 1.

    Example:
        >>> from gossamer import Digits
        >>> Mlp((32,)).learner(Digits().load()).parameters
        2410
    """

    hidden: tuple[int, ...] = (64,)
    dropout: float = 0.0
    loss: Loss | None = None

    def __post_init__(self) -> None:
        if not self.hidden or min(self.hidden) < 1:
            raise InputError("hidden", self.hidden, "a list of whole numbers of at least 1")
        checks.number("dropout", self.dropout, least=0, below=1)

    def learner(self, data: Data) -> Learner:
        outputs = _outputs("mlp", data)
        widths = (torch.Size(data.shape).numel(), *self.hidden, outputs)
        parameters = sum(a * b for a, b in pairwise(widths))
        _check_parameters("hidden", self.hidden, parameters)

        def make() -> nn.Module:
            layers: list[nn.Module] = [nn.Flatten()]
            width = torch.Size(data.shape).numel()
            for units in self.hidden:
                layers += [nn.Linear(width, units), nn.ReLU()]
                if self.dropout:
                    layers.append(nn.Dropout(self.dropout))
                width = units
            return nn.Sequential(*layers, nn.Linear(width, outputs))

        return Module(make, self.loss).learner(_with_floats(data))


def _check_parameters(field: str, value: object, parameters: int) -> None:
    """Refuse a model that cannot be in memory, before torch is asked for it."""
    needed = parameters * _BYTES
    refuse_too_large(field, value, needed, f"a smaller model: {parameters:,} parameters take")


@register("model", "cnn")
@dataclass(frozen=True)
class Cnn:
    """A small convolutional network for images [channels, height, width].

    Two 3×3 convolutions with ReLU, each followed by pooling that halves the image.

    Args:
        channels: Channels of the two convolutions.
        norm: Batch normalisation after each convolution. Its running statistics stay with their
            device.
        loss: The loss. Default: as in `Module`.

    Raises:
        InputError: If there are not two numbers of channels.

    Example:
        >>> from gossamer import Digits
        >>> Cnn((4, 8)).learner(Digits().load()).parameters
        666
    """

    channels: tuple[int, int] = (16, 32)
    norm: bool = False
    loss: Loss | None = None

    def __post_init__(self) -> None:
        if len(self.channels) != 2 or min(self.channels) < 1:
            raise InputError("channels", self.channels, "two whole numbers of at least 1")

    def learner(self, data: Data) -> Learner:
        if len(data.shape) != 3 or min(data.shape[1:]) < _SMALLEST_IMAGE:
            accepted = (
                f"images of at least {_SMALLEST_IMAGE} × {_SMALLEST_IMAGE} pixels; "
                f"these samples have shape {list(data.shape)}"
            )
            raise InputError("model", "cnn", accepted)
        outputs = _outputs("cnn", data)
        first, second = self.channels
        _check_parameters("channels", self.channels, 9 * first * (data.shape[0] + second))

        def make() -> nn.Module:
            layers: list[nn.Module] = []
            width = data.shape[0]
            for channels in self.channels:
                layers.append(nn.Conv2d(width, channels, 3, padding=1))
                if self.norm:
                    layers.append(nn.BatchNorm2d(channels))
                layers += [nn.ReLU(), nn.MaxPool2d(2)]
                width = channels
            pixels = (data.shape[1] // 4) * (data.shape[2] // 4)
            return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * pixels, outputs))

        return Module(make, self.loss).learner(_with_floats(data))


def _outputs(kind: str, data: Data) -> int:
    """Return the number of outputs: one per class, or one per value of a target."""
    if data.targets == "tokens":
        raise InputError("model", kind, "a module: the targets are a class for each position")
    return data.classes or data.y[0].numel()


def _with_floats(data: Data) -> Data:
    """Return data whose samples are floating-point numbers."""
    if data.x.is_floating_point():
        return data
    return replace(data, x=data.x.float(), x_test=data.x_test.float())
