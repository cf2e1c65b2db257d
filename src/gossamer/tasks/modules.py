"""Any `torch.nn.Module` as a model, for a stack of devices at once: through torch.func, a perceptron by batched products.

What is mixed: the parameters that are trained. What stays with its device: the buffers, such as BatchNorm's running
statistics; a device normalises by its own data, and is evaluated with its own statistics. Frozen parameters
(requires_grad = False) are constants, one copy for all devices. Dropout draws its masks by name, like all else.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from gossamer import draws
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.tasks.data import Data
from gossamer.tasks.learner import Buffers, Learner, Scores

Loss = Callable[[Tensor, Tensor], Tensor]
_NUMBERS_AT_ONCE = 1 << 24  # numbers that one evaluation pass may put through a module
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_BY_NUMBER = (
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


class _Pass(TorchFunctionMode):
    """A device's forward pass: every dropout, be it a layer or F.dropout, is drawn by name, the same on every engine.

    A mask is a hash of (the device's key, which dropout of the pass it is, the element). Without a key, in evaluation, none may
    be drawn. `stacked`: it is the pass of many devices at once, whose linear layers are then taken so as to be trained faster.
    """

    def __init__(self, key: Tensor | None, stacked: bool = False) -> None:
        super().__init__()
        self.key, self.drawn, self.stacked = key, 0, stacked

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is F.dropout:
            return self._dropout(False, *args, **kwargs)
        if function in (F.dropout1d, F.dropout2d, F.dropout3d):
            return self._dropout(True, *args, **kwargs)
        if function is F.linear and self.stacked and self.key is not None:
            return _linear(*args, **kwargs)
        return function(*args, **kwargs)

    def keyed(self, p: float) -> Callable[[Tensor, Tensor], tuple[Tensor]]:
        """The next dropout of a pass, as a function of a device's key and values."""

        def one(key: Tensor, values: Tensor) -> tuple[Tensor]:
            self.key = key
            return (self._dropout(False, values, p),)

        return one

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
        shape = (
            torch.Size((*input.shape[:2], *(1 for _ in input.shape[2:])))
            if channels
            else input.shape
        )
        element = torch.arange(shape.numel(), device=input.device).view(shape)
        h = _mixed(
            element * -7046029254386353131 + _mixed(self.key + self.drawn)
        )  # int64 wraps around, as a hash wants
        self.drawn += 1
        kept = ((h >> 33) & 0x7FFFFFFF) >= int(p * 2.0**31)
        scale = kept.to(input.dtype) / max(1 - p, 2.0**-31)
        return input.mul_(scale) if inplace else input * scale


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """F.linear by a product whose gradient has the layout of the weights: for a stack of devices much faster than its own."""
    if input.dim() != 2 or (bias is not None and bias.dim() != 1):
        return F.linear(input, weight, bias)
    product = weight @ input.mT if bias is None else torch.addmm(bias[:, None], weight, input.mT)
    return product.mT.contiguous()


def _mixed(h: Tensor) -> Tensor:
    """MurmurHash3's finaliser, as in `draws`; the mask makes >> a shift of unsigned bits."""
    for factor in (-49064778989728563, -4265267296055464877):
        h = (h ^ ((h >> 33) & 0x7FFFFFFF)) * factor
    return h ^ ((h >> 33) & 0x7FFFFFFF)


_Tensors = Tensor | dict[str, Tensor]


def _flat(parts: Iterable[_Tensors]) -> list[Tensor]:
    return [x for part in parts for x in (part.values() if isinstance(part, dict) else [part])]


def _formed(like: Iterable[_Tensors], tensors: Iterable[Tensor]) -> tuple[_Tensors, ...]:
    """The tensors in the form that they had before `_flat`."""
    left = iter(tensors)
    return tuple(
        {name: next(left) for name in part} if isinstance(part, dict) else next(left)
        for part in like
    )


def _stacked(one: Callable[..., tuple[_Tensors, ...]], *stacks: _Tensors) -> Any:
    """one(…) for all devices at once."""
    found: list[_Tensors] = []

    def flat(
        *tensors: Tensor,
    ) -> tuple[
        Tensor, ...
    ]:  # vmap takes dicts too, but for them needs as long as for a small model
        found[:] = one(*_formed(stacks, tensors))
        return tuple(_flat(found))

    return _formed(found, vmap(flat, randomness="error")(*_flat(stacks)))


def _in_turn(one: Callable[..., tuple[_Tensors, ...]], *stacks: _Tensors) -> Any:
    """one(…) for a device at a time, for modules that cannot run stacked."""
    results = [
        one(*_formed(stacks, (x[i] for x in _flat(stacks)))) for i in range(len(_flat(stacks)[0]))
    ]
    return _formed(results[0], map(torch.stack, zip(*map(_flat, results), strict=True)))


def _places(module: nn.Module) -> dict[str, str]:
    """The name of what is in each place of a module: tied weights are one tensor in two places.

    functional_call could tie them itself, but then leaves a layer that is registered under two names in disorder.
    """
    first: dict[int, str] = {}
    places = {}
    for prefix, part in module.named_modules():  # each layer once, under its first name
        tensors = (
            *part.named_parameters(recurse=False, remove_duplicate=False),
            *part.named_buffers(recurse=False, remove_duplicate=False),
        )
        for name, tensor in tensors:
            place = f"{prefix}.{name}" if prefix else name
            places[place] = first.setdefault(id(tensor), place)
    return places


def _perceptron(module: nn.Module, data: Data) -> list[nn.Module]:
    """The layers of a plain perceptron, in order; none for any other module.

    A stack of such needs batched products alone, and not torch.func: a small model's gradient takes just over half the time.
    It must be certain that they are all that happens: just these classes, nothing hooked to them, all weights trained.
    """
    parts = [part for _, part in module.named_modules(remove_duplicate=False)]
    layers = [part for part in parts if type(part) is not nn.Sequential]
    plain = (
        all(type(layer) in (nn.Flatten, nn.Linear, nn.Dropout, *_BY_NUMBER) for layer in layers)
        and all(
            (layer.start_dim, layer.end_dim) == (1, -1)
            for layer in layers
            if isinstance(layer, nn.Flatten)
        )
        and (len(data.shape) == 1 or isinstance(next(iter(layers), None), nn.Flatten))
        and all(p.requires_grad for p in module.parameters())
        and not any(
            "forward" in vars(part) or any(getattr(part, hooks) for hooks in _HOOKS)
            for part in parts
        )
    )
    return layers if plain else []


class ModuleLearner(Learner):
    """A module and a loss of (outputs, targets) that gives one number a sample."""

    draws = True
    at_once = 6_400_000  # more than for a linear model, since a call costs more

    def __init__(
        self, module: nn.Module, loss: Loss, data: Data, fresh: Callable[[int], nn.Module] | None
    ) -> None:
        self._name = type(module).__name__
        if any(nn.parameter.is_lazy(part) for part in (*module.parameters(), *module.buffers())):
            raise InputError(
                "module",
                self._name,
                "a module whose lazy layers have run once, so that their shapes are known",
            )
        self.module, self._per_sample, self._classes, self._fresh = (
            copy.deepcopy(module),
            loss,
            data.classes,
            fresh,
        )
        self._start = {
            name: p.detach().clone()
            for name, p in self.module.named_parameters()
            if p.requires_grad
        }
        if not self._start or any(p.is_complex() for p in self._start.values()):
            raise InputError(
                "module", self._name, "a module with parameters to train, all of them real numbers"
            )
        self.shapes = {name: tuple(p.shape) for name, p in self._start.items()}
        self._places = _places(self.module)
        self._for_each = _stacked
        self._own = threading.local()
        self._layers = _perceptron(self.module, data)
        if self._layers:  # nothing here is one thread's alone, and a call costs little
            self.concurrent, self.at_once = True, Learner.at_once
        self._names = {id(p): name for name, p in self.module.named_parameters()}
        images = any(isinstance(part, nn.Conv2d) for part in self.module.modules())
        self._channels_last = images and all(
            p.dtype == torch.float32 for p in self._start.values()
        )  # else it is not tried
        if any(isinstance(part, nn.modules.conv._ConvNd) for part in self.module.modules()):
            self._one_by_one()  # many small convolutions are slower at once than one after the other
        try:
            self._try(data)
        except InputError:  # recurrent layers, `.item()` and branches on the data cannot run stacked; nor `.view` channels last
            self._one_by_one()
            self._layers, self._channels_last = [], False
            self._try(data)

    def _one_by_one(self) -> None:
        """A device at a time, and so a thread for each: a module is one device's while it runs, so each has its own."""
        self._for_each, self.concurrent, self.at_once = _in_turn, True, 1

    def _try(self, data: Data) -> None:
        """Train and score once, so that what cannot be done is refused now and not in the first round."""
        w = torch.cat([p.reshape(-1) for p in self._start.values()])[None]
        w = w.to(
            torch.promote_types(w.dtype, torch.float32)
        )  # not less than the module has: its constants are cast with it
        x, y = (
            part[[0, -1]] for part in (data.x, data.y)
        )  # two samples, since BatchNorm takes no single one
        x, y = x.to(w.dtype), y.to(w.dtype) if y.is_floating_point() else y
        buffers = {
            name: (b.to(w.dtype) if b.is_floating_point() else b)[None]
            for name, b in self.buffers().items()
        }
        before = torch.random.get_rng_state()
        self.gradient(
            w, x[None], y[None], buffers, torch.zeros(1, dtype=torch.int64), torch.empty_like(w)
        )
        self.scores(w, x, y, buffers)
        if not torch.equal(before, torch.random.get_rng_state()):
            torch.random.set_rng_state(before)
            accepted = "a module whose only randomness is Dropout (layers or F.dropout): other draws cannot be made by name"
            raise InputError("module", self._name, accepted)

    @contextmanager
    def _told(self, shape: torch.Size) -> Iterator[None]:
        """Whatever goes wrong inside the module, in one sentence."""
        try:
            yield
        except Exception as error:
            if isinstance(error, InputError | MemoryError) or "allocate" in str(
                error
            ):  # torch's way to say it
                raise
            said = next(iter(str(error).splitlines()), type(error).__name__)
            raise InputError(
                "module",
                self._name,
                f"one that runs on a batch of shape {list(shape)}; torch says: {said}",
            ) from error

    def init(self, seed: int) -> Tensor:
        start = dict(self._fresh(seed).named_parameters()) if self._fresh else self._start
        return torch.cat([start[name].detach().reshape(-1) for name in self.shapes])

    def buffers(self) -> Buffers:
        return {name: b.detach().clone() for name, b in self.module.named_buffers()}

    def _forward(
        self, parameters: dict[str, Tensor], buffers: Buffers, x: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Buffers]:
        """One device's outputs, and its buffers after the pass."""
        # A module updates its buffers in place (on copies, since vmap must not see the stack change under it), or puts
        # new ones there, which functional_call writes back to the one dict that it is given.
        own = parameters | {name: b.clone() for name, b in buffers.items()}
        state = {place: own[name] for place, name in self._places.items() if name in own}
        if (
            self._channels_last
            and x.dim() == 4
            and (x.device.type, x.dtype) == ("cpu", torch.float32)
        ):
            # Pooling takes a fifth of its time, and so a small network three quarters; with float64 there is nothing to gain
            x = torch.empty_like(x, memory_format=torch.channels_last).copy_(
                x
            )  # unlike `contiguous`, also of one channel
        with _Pass(key, stacked=self._for_each is _stacked):
            outputs = functional_call(self._own.module, state, (x,), tie_weights=False)
        return outputs, {name: state[name].detach() for name in buffers}

    def _set(self, w: Tensor, training: bool) -> None:
        """Put this thread's module, whose frozen parameters are its own, where the stack is, and into its mode."""
        own, wanted = self._own, (w.device, w.dtype, training)
        if not hasattr(own, "module"):
            own.module, own.mode = copy.deepcopy(self.module), None
        if own.mode != wanted:
            own.module.to(w.device, w.dtype).train(training)
            own.mode = wanted

    def _judged(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each sample."""
        if self._classes is not None and (outputs.dim() != 2 or outputs.shape[1] < self._classes):
            accepted = f"outputs of shape [batch, {self._classes}], one for each class"
            raise InputError("module", f"{self._name} with outputs {list(outputs.shape)}", accepted)
        losses = self._per_sample(outputs, y)
        if losses.shape != y.shape[:1]:
            raise InputError(
                "loss",
                f"shape {list(losses.shape)}",
                'one number a sample, shape [batch] (reduction="none")',
            )
        return losses

    def _perceptron_losses(
        self, parameters: dict[str, Tensor], x: Tensor, y: Tensor, keys: Tensor
    ) -> Tensor:
        """The losses of a perceptron's samples [devices, batch], by batched products of values [devices, units, batch]."""
        values, dropout = x.flatten(2).transpose(1, 2), _Pass(None)
        for layer in self._layers:
            if isinstance(layer, nn.Linear):
                weight = parameters[self._names[id(layer.weight)]]
                bias = (
                    layer.bias
                    if layer.bias is None
                    else parameters[self._names[id(layer.bias)]][..., None]
                )
                values = (
                    torch.bmm(weight, values)
                    if bias is None
                    else torch.baddbmm(bias, weight, values)
                )
            elif isinstance(layer, nn.Dropout):
                (kept,) = _stacked(dropout.keyed(layer.p), keys, values.transpose(1, 2))
                values = kept.transpose(1, 2)
            elif not isinstance(layer, nn.Flatten):
                values = layer(values)
        return self._all_judged(values.transpose(1, 2), y)

    def _all_judged(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The losses of all samples [devices, batch]; the one that is known without torch.func, which costs more than it."""
        if (
            self._per_sample is _cross_entropy
            and outputs.dim() == 3
            and outputs.shape[2] >= (self._classes or 0)
        ):
            return F.cross_entropy(outputs.transpose(1, 2), y, reduction="none")
        judged: tuple[Tensor] = _stacked(
            lambda outputs, y: (self._judged(outputs, y),), outputs.contiguous(), y
        )
        return judged[0]

    def _losses(
        self, parameters: dict[str, Tensor], x: Tensor, y: Tensor, buffers: Buffers, keys: Tensor
    ) -> Tensor:
        """Each device's mean batch loss; the running statistics in `buffers` are brought up to date on the way."""
        if self._layers:
            return self._perceptron_losses(parameters, x, y, keys).mean(1)

        def one(
            parameters: dict[str, Tensor], own: Buffers, x: Tensor, y: Tensor, key: Tensor
        ) -> tuple[Tensor, Buffers]:
            outputs, own = self._forward(parameters, own, x, key)
            return self._judged(outputs, y).mean(), own

        self._set(x, training=True)
        if self._for_each is _stacked:
            outputs, after = _stacked(self._forward, parameters, buffers, x, keys)
            losses: Tensor = self._all_judged(outputs, y).mean(1)
        else:
            losses, after = self._for_each(one, parameters, buffers, x, y, keys)
        for name, b in after.items():
            buffers[name].copy_(b)
        return losses

    def gradient(
        self, w: Tensor, x: Tensor, y: Tensor, buffers: Buffers, keys: Tensor, out: Tensor
    ) -> None:
        # Devices share nothing, so the gradient of the sum of their losses is every device's own gradient.
        parameters = {
            name: part.detach().requires_grad_() for name, part in self.unstack(w).items()
        }
        with self._told(x.shape[1:]), torch.enable_grad():
            total = self._losses(parameters, x, y, buffers, keys).sum()
            found = torch.autograd.grad(
                total, list(parameters.values()), allow_unused=True, materialize_grads=True
            )
            for part, gradient in zip(
                self.unstack(out).values(), found, strict=True
            ):  # views of `out`
                part.copy_(gradient)

    def loss(self, w: Tensor, x: Tensor, y: Tensor, buffers: Buffers, keys: Tensor) -> Tensor:
        with self._told(x.shape[1:]), torch.no_grad():
            return self._losses(
                self.unstack(w), x, y, {name: b.clone() for name, b in buffers.items()}, keys
            )

    def scores(self, w: Tensor, x: Tensor, y: Tensor, buffers: Buffers) -> Scores:
        self._set(w, training=False)
        at_once = max(1, _NUMBERS_AT_ONCE // (len(w) * max(1, x[0].numel() * 4)))
        loss, right = w.new_zeros(len(w)), w.new_zeros(len(w))
        with self._told(x.shape), torch.no_grad():
            for some_x, some_y in zip(x.split(at_once), y.split(at_once), strict=True):
                some_loss, some_right = self._for_each(
                    self._scorer(some_x, some_y), self.unstack(w), buffers
                )
                loss += some_loss
                right += some_right
        return Scores(loss / len(x), right / len(x))

    def _scorer(
        self, x: Tensor, y: Tensor
    ) -> Callable[[dict[str, Tensor], Buffers], tuple[Tensor, Tensor]]:
        def one(parameters: dict[str, Tensor], own: Buffers) -> tuple[Tensor, Tensor]:
            outputs, _ = self._forward(parameters, own, x, None)
            losses = self._judged(outputs, y)
            right = (
                outputs.argmax(-1) == y
                if self._classes is not None
                else torch.full_like(losses, torch.nan)
            )
            return losses.sum(), right.sum()

        return one


def _cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    # F.cross_entropy has no rule of its own under vmap, and is taken apart anew in every call
    return outputs.logsumexp(1) - outputs.gather(1, y[:, None]).squeeze(1)


def _squared_error(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs.reshape(y.shape) - y).square().reshape(len(y), -1).sum(1) / 2


def _learner(
    module: nn.Module, data: Data, loss: Loss | None, fresh: Callable[[int], nn.Module] | None
) -> Learner:
    default = _squared_error if data.classes is None else _cross_entropy
    return ModuleLearner(module, loss or default, data, fresh)


@dataclass(frozen=True)
class Module:
    """The user's own module. Its present parameters are the start; a function that makes one is called for each seed.

    A module gets a batch [batch, …] and gives outputs [batch, classes], or as many numbers as the target has. The
    `loss(outputs, targets)` is one number a sample; without it: cross-entropy for classes, else half the squared error.
    Buffers and frozen parameters start as in the module that is given or made first, whatever the seed.

    >>> Module(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))          # doctest: +ELLIPSIS
    Module(module=<function ...>, loss=None)
    """

    module: nn.Module | Callable[[], nn.Module]
    loss: Loss | None = None

    def __post_init__(self) -> None:
        if not callable(self.module):
            raise InputError(
                "module", self.module, "a torch.nn.Module, or a function that makes one"
            )

    def learner(self, data: Data) -> Learner:
        if isinstance(self.module, nn.Module):
            return _learner(self.module, data, self.loss, None)
        make = self.module
        return _learner(_seeded(make, 0), data, self.loss, lambda seed: _seeded(make, seed))


def _seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Make a module with torch's own generator at a named seed, and leave that generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draws.subseed(seed, "start"))
        made = make()
    if not isinstance(made, nn.Module):
        raise InputError("module", made, "a function that makes a torch.nn.Module")
    return made


@register("model", "mlp")
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


@register("model", "cnn")
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
            raise InputError(
                "model",
                "cnn",
                f"images of at least 4 × 4 pixels; these samples have shape {list(data.shape)}",
            )

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
            return nn.Sequential(
                *layers, nn.Flatten(), nn.Linear(width * pixels, data.classes or 1)
            )

        return Module(make).learner(data)
