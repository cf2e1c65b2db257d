"""Any `torch.nn.Module` as a model, for a stack of devices at once through torch.func.

What is mixed: the parameters. What stays with its device: the buffers, such as BatchNorm's running statistics; a device
normalises by its own data, and is evaluated with its own statistics. Dropout draws its masks by name, like all else.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from gossamer import draws
from gossamer.errors import InputError
from gossamer.tasks.data import Data
from gossamer.tasks.learner import Buffers, Learner, Scores

Loss = Callable[[Tensor, Tensor], Tensor]
_OUTPUTS_AT_ONCE = 1 << 24  # numbers that one evaluation pass may put through a module


class NamedDropout(nn.Module):
    """Dropout whose mask is a hash of (the device's key, this layer, the element): the same on every engine."""

    key: Tensor

    def __init__(self, p: float, layer: int, channels: bool) -> None:
        super().__init__()
        self.p, self.layer, self.channels = p, layer, channels
        self.register_buffer("key", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        shape = x.shape[:2] + (1,) * (x.dim() - 2) if self.channels else x.shape
        h = torch.arange(torch.Size(shape).numel(), device=x.device).reshape(shape)
        h = h * -7046029254386353131 + self.key + self.layer * 0x632BE59BD9B4E019  # int64 wraps around, as a hash wants
        for factor in (-49064778989728563, -4265267296055464877):
            h = (h ^ ((h >> 33) & 0x7FFFFFFF)) * factor
        kept = ((h >> 33) & 0x7FFFFFFF) * 2.0**-31 >= self.p
        return x * kept / (1 - self.p)


def _with_named_dropout(module: nn.Module) -> nn.Module:
    """A copy of the module in which every dropout layer draws by name."""
    channelwise = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
    copied = copy.deepcopy(module)
    layer = 0
    for parent in list(copied.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d):
                setattr(parent, name, NamedDropout(child.p, layer, isinstance(child, channelwise)))
                layer += 1
            elif isinstance(child, nn.AlphaDropout | nn.FeatureAlphaDropout | nn.RReLU):
                raise InputError("module", type(child).__name__, "Dropout layers only: this one cannot draw by name")
    return copied


class ModuleLearner(Learner):
    """A module and a loss of (outputs, targets) that gives one number a sample."""

    def __init__(self, module: nn.Module, loss: Loss, classifies: bool, fresh: Callable[[int], nn.Module] | None) -> None:
        self.module, self._per_sample, self._classifies = _with_named_dropout(module), loss, classifies
        self._fresh = fresh
        self._start = {name: p.detach().clone() for name, p in self.module.named_parameters()}
        if not self._start:
            raise InputError("module", type(module).__name__, "a module with parameters")
        self.shapes = {name: tuple(p.shape) for name, p in self._start.items()}
        self._keys = [name for name, _ in self.module.named_buffers() if name.rpartition(".")[2] == "key"]

    def init(self, seed: int) -> Tensor:
        start = dict(self._fresh(seed).named_parameters()) if self._fresh else self._start
        return torch.cat([start[name].detach().reshape(-1) for name in self.shapes])

    def buffers(self) -> Buffers:
        return {name: b.detach().clone() for name, b in self.module.named_buffers() if name not in self._keys}

    def _losses(self, w: Tensor, x: Tensor, y: Tensor, buffers: Buffers, keys: Tensor) -> Tensor:
        """Each device's mean batch loss; the running statistics in `buffers` are brought up to date on the way."""
        self.module.train()

        def one(parameters: dict[str, Tensor], own: Buffers, x: Tensor, y: Tensor, key: Tensor) -> tuple[Tensor, Buffers]:
            # A module updates its buffers in place: on copies, since vmap must not see the stack change under it.
            own = {name: b.clone() for name, b in own.items()}
            outputs = functional_call(self.module, (parameters, own, dict.fromkeys(self._keys, key)), (x,))
            return self._per_sample(outputs, y).mean(), own

        losses, fresh = vmap(one, randomness="error")(self.unstack(w), buffers, x, y, keys)
        for name, b in fresh.items():
            buffers[name].copy_(b.detach())
        return losses

    def gradient(self, w: Tensor, x: Tensor, y: Tensor, buffers: Buffers, keys: Tensor) -> Tensor:
        # Devices share nothing, so the gradient of the sum of their losses is every device's own gradient.
        w = w.detach().requires_grad_()
        with torch.enable_grad():
            total = self._losses(w, x, y, buffers, keys).sum()
        return torch.autograd.grad(total, w)[0]

    def loss(self, w: Tensor, x: Tensor, y: Tensor, buffers: Buffers, keys: Tensor) -> Tensor:
        with torch.no_grad():
            return self._losses(w, x, y, {name: b.clone() for name, b in buffers.items()}, keys)

    def scores(self, w: Tensor, x: Tensor, y: Tensor, buffers: Buffers) -> Scores:
        self.module.eval()
        keys = {name: torch.zeros((), dtype=torch.int64, device=w.device) for name in self._keys}

        def one(parameters: dict[str, Tensor], own: Buffers, x: Tensor) -> Any:
            return functional_call(self.module, (parameters, own, keys), (x,))

        loss, right = w.new_zeros(len(w)), w.new_zeros(len(w))
        at_once = max(1, _OUTPUTS_AT_ONCE // (len(w) * max(1, x[0].numel() * 4)))
        with torch.no_grad():
            for some_x, some_y in zip(x.split(at_once), y.split(at_once), strict=True):
                outputs = vmap(one, in_dims=(0, 0, None))(self.unstack(w), buffers, some_x)
                loss += vmap(self._per_sample, in_dims=(0, None))(outputs, some_y).reshape(len(w), -1).sum(1)
                if self._classifies:
                    right += (outputs.argmax(-1) == some_y).sum(1)
        return Scores(loss / len(x), right / len(x) if self._classifies else torch.full_like(loss, torch.nan))


def _cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, y, reduction="none")


def _squared_error(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs.reshape(y.shape) - y).square().reshape(len(y), -1).sum(1) / 2


def _learner(module: nn.Module, data: Data, loss: Loss | None, fresh: Callable[[int], nn.Module] | None) -> Learner:
    default = _squared_error if data.classes is None else _cross_entropy
    return ModuleLearner(module, loss or default, data.classes is not None, fresh)


@dataclass(frozen=True)
class Module:
    """The user's own module. Its present parameters are the start; a function that makes one is called for each seed.

    `loss(outputs, targets)` gives one number a sample; without it: cross-entropy for classes, squared error otherwise.

    >>> Module(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))          # doctest: +ELLIPSIS
    Module(module=<function ...>, loss=None)
    """

    module: nn.Module | Callable[[], nn.Module]
    loss: Loss | None = None

    def learner(self, data: Data) -> Learner:
        if isinstance(self.module, nn.Module):
            return _learner(self.module, data, self.loss, None)
        make = self.module
        return _learner(_seeded(make, 0), data, self.loss, lambda seed: _seeded(make, seed))


def _seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Make a module with torch's own generator at a named seed, and leave that generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draws.subseed(seed, "start"))
        return make()


@dataclass(frozen=True)
class Mlp:
    """A multi-layer perceptron with ReLU: `hidden` units a layer, `dropout` after each."""

    hidden: tuple[int, ...] = (64,)
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if not self.hidden or min(self.hidden) < 1:
            raise InputError("hidden", self.hidden, "a list of whole numbers of at least 1")
        if not 0 <= self.dropout < 1:
            raise InputError("dropout", self.dropout, "a number from 0 to below 1")

    def learner(self, data: Data) -> Learner:
        def make() -> nn.Module:
            layers: list[nn.Module] = [nn.Flatten()]
            width = torch.Size(data.shape).numel()
            for units in self.hidden:
                layers += [nn.Linear(width, units), nn.ReLU()]
                if self.dropout:
                    layers.append(nn.Dropout(self.dropout))
                width = units
            return nn.Sequential(*layers, nn.Linear(width, data.classes or 1))

        return Module(make).learner(data)


@dataclass(frozen=True)
class Cnn:
    """A small convolutional network for images [channels, height, width]: two 3×3 layers, each halved by pooling.

    `norm`: BatchNorm after each convolution; its running statistics stay with their device.
    """

    channels: tuple[int, int] = (16, 32)
    norm: bool = False

    def __post_init__(self) -> None:
        if len(self.channels) != 2 or min(self.channels) < 1:
            raise InputError("channels", self.channels, "two whole numbers of at least 1")

    def learner(self, data: Data) -> Learner:
        if len(data.shape) != 3 or min(data.shape[1:]) < 4:
            raise InputError("model", "cnn", f"images of at least 4 × 4 pixels; these samples have shape {list(data.shape)}")

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
            return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * pixels, data.classes or 1))

        return Module(make).learner(data)
