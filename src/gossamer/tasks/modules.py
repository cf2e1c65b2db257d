"""Any `torch.nn.Module` as a learner, for a stack of devices at once.

The trained parameters are mixed. Buffers, such as BatchNorm's running statistics, stay with their
device: it normalises by its own data and is evaluated with its own statistics. Frozen parameters
(requires_grad = False) are constants, one copy for all devices and threads; so are buffers that the
module neither saves nor changes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gossamer._core.warn import warn_user
from gossamer.errors import InputError, SpeedWarning
from gossamer.tasks import faster_pooling, module_copies
from gossamer.tasks.data import Data
from gossamer.tasks.forward_pass import ForwardPass
from gossamer.tasks.learner import Buffers, Learner, Scores
from gossamer.tasks.losses import Loss, LossFunction, Terms, loss_of
from gossamer.tasks.metric import Metric
from gossamer.tasks.metrics import Meters
from gossamer.tasks.module_trial import (
    has_convolutions,
    has_dropout,
    obstacle_of,
    output_sizes,
    output_tensor,
    refusing,
)
from gossamer.tasks.perceptron import Perceptron
from gossamer.tasks.random_ops import RandomOps
from gossamer.tasks.stacking import run_one_by_one, run_stacked, silence_layout_warning

_EVALUATION_ELEMENTS = 1 << 24  # elements that one evaluation pass may put through a module
_WIDE = 1 << 15  # elements of a layer's output per sample from which attention runs one by one
# Elements of a layer's output from which a thread pays: at 65,000 two are as fast as one, at
# 131,000 they take 0.73 of the time, and a quarter more processor time.
_ATTENTION_PER_THREAD = 120_000
_ATTENTION = "aten::_scaled_dot_product"
_LARGEST_LAYER = 4  # assumed size of a module's largest layer, in inputs that are not tokens
_TRAINING_ELEMENTS = 1 << 26  # outputs of layers that one pass keeps for gradients: 256 MiB


class ModuleLearner(Learner):
    """A module and its loss.

    Args:
        module: The module. It is copied, except for its frozen parameters, which are shared.
        loss: The loss, or None for the default of the data's targets.
        data: The data, which the module is tried on.
        make: Function that makes the module of a seed; None: every seed starts from `module`.

    Raises:
        InputError: If the module cannot be trained on the data.
    """

    draws = True
    at_once = 6_400_000  # larger than for a linear model, since a call costs more

    def __init__(
        self,
        module: nn.Module,
        loss: Loss | LossFunction | None,
        data: Data,
        make: Callable[[int], nn.Module] | None = None,
    ) -> None:
        self._name = type(module).__name__
        silence_layout_warning()
        if any(nn.parameter.is_lazy(part) for part in (*module.parameters(), *module.buffers())):
            raise InputError(
                "module",
                self._name,
                "a module whose lazy layers have run once, so that their shapes are known",
            )
        frozen = module_copies.frozen(module)
        self._constants = module_copies.Constants(frozen)
        self._constant_buffers: frozenset[str] = frozenset()
        self.module = module_copies.copied(module, frozen)
        self.integers = not data.x.is_floating_point()
        self._classes = data.classes
        self._make = make
        self._loss = loss_of(loss, data)
        self._start = {name: p.clone() for name, p in module_copies.trained(module).items()}
        if not self._start or any(p.is_complex() for p in self._start.values()):
            raise InputError(
                "module", self._name, "a module with parameters to train, all of them real numbers"
            )
        self.shapes = {name: tuple(p.shape) for name, p in self._start.items()}
        self._places = module_copies.places(self.module)
        self._stacked = True
        self._stacked_attention = False
        self._draws_values = True
        self._has_drawn = False
        self._replaces_dropout = True
        self._has_dropout = False
        self._own = threading.local()
        self._perceptron = Perceptron.find(self.module, data)
        if self._perceptron:  # nothing in it belongs to one thread, and a call costs little
            self.concurrent = True
            self.at_once = Learner.at_once
        self._channels_last = self._gains_from_channels_last()
        if has_convolutions(self.module):
            self._run_one_by_one()  # many small convolutions are slower at once
        self._largest_layer = data.x[0].numel() * _LARGEST_LAYER
        self._settle(data)
        if self.integers:
            self._limit_tokens(data)

    def _gains_from_channels_last(self) -> bool:
        images = any(isinstance(part, nn.Conv2d) for part in self.module.modules())
        return images and all(p.dtype == torch.float32 for p in self._start.values())

    def _runs_channels_last(self, x: Tensor) -> bool:
        """True if batches of the type of x run channels last.

        Pooling then takes a fifth of its time, a small network three quarters; float64 gains
        nothing.
        """
        return self._channels_last and x.device.type == "cpu" and x.dtype == torch.float32

    def _run_one_by_one(self) -> None:
        """Run one device at a time, several in threads: each thread has its own module."""
        self._stacked = False
        self._stacked_attention = False
        self.concurrent = True
        self.at_once = 1

    def _settle(self, data: Data) -> None:
        """Find out how the module runs: stacked, or one device at a time."""
        stacked = self._stacked
        obstacle = obstacle_of(lambda: self._try(data))
        if _ATTENTION in obstacle:
            self.sample_elements = max(self._layers(data))
            self._stacked_attention = self.sample_elements < _WIDE
            self.elements_per_thread = _ATTENTION_PER_THREAD
            self.concurrent = True
            obstacle = obstacle_of(lambda: self._try(data))
        if not obstacle:
            return
        # Recurrent layers, `.item()` and branches on the data cannot run stacked; `.view` cannot
        # run channels last.
        self._run_one_by_one()
        self._perceptron = None
        self._channels_last = False
        self._try(data)
        if stacked and _ATTENTION not in obstacle:
            warn_user(
                f"{self._name} trains one device at a time, which takes longer if there are many: "
                f"{obstacle}",
                SpeedWarning,
            )

    def _layers(self, data: Data) -> list[int]:
        """Return the elements of the outputs of all layers for one sample."""
        w = self._first_row()
        self._prepare_module(w, training=False)
        own = {name: module_copies.cast(b, w.dtype) for name, b in self.buffers().items()}
        with torch.no_grad(), output_sizes(self._own.module) as sizes:
            self._forward(self.unstack(w[0]), own, module_copies.cast(data.x[:1], w.dtype), None)
        return sizes

    def _limit_tokens(self, data: Data) -> None:
        """Bound the memory of a pass: a token is one number, but what is made of it is large."""
        layers = self._layers(data)
        self._largest_layer = max(layers, default=1)
        if self._stacked:
            sample = self.sample_elements or data.x[0].numel()
            most = sample * _TRAINING_ELEMENTS // max(1, sum(layers))
            self.at_once = max(1, min(self.at_once, most))

    def _first_row(self) -> Tensor:
        """Return the start as a stack of one device."""
        w = torch.cat([p.reshape(-1) for p in self._start.values()])[None]
        # Not less precise than the module: its constants are cast with it.
        return w.to(torch.promote_types(w.dtype, torch.float32))

    def _try(self, data: Data) -> None:
        """Train and score once, to refuse now and not in the first round what cannot be done."""
        self._draws_values = True
        self._has_drawn = False
        self._replaces_dropout = True
        self._has_dropout = has_dropout(self.module)
        w = self._first_row()
        two = [0, -1]  # samples, since BatchNorm takes no single one
        x = module_copies.cast(data.x[two], w.dtype)
        y = data.y[two]
        if y.dtype != torch.int64:
            y = y.to(w.dtype)
        buffers = {name: module_copies.cast(b, w.dtype)[None] for name, b in self.buffers().items()}
        keys = torch.zeros(1, dtype=torch.int64)
        before = {name: b.clone() for name, b in buffers.items()}
        with torch.random.fork_rng(devices=[]):
            generator_before = torch.random.get_rng_state()
            self._check_targets(w, x, y, buffers, data)
            self.gradient(w, x[None], y[None], buffers, keys, torch.empty_like(w))
            self.scores(w, x, y, buffers)
            drawn = not torch.equal(generator_before, torch.random.get_rng_state())
        # What the module neither saves nor changes, such as position numbers, is a constant.
        saved = self.module.state_dict()
        unchanged = [name for name in before if torch.equal(before[name], buffers[name])]
        self._constant_buffers = frozenset(unchanged) - frozenset(saved)
        if drawn:
            accepted = "a module that draws by operations of torch alone, without a generator"
            raise InputError("module", self._name, accepted)
        self._draws_values = self._has_drawn
        self._replaces_dropout = self._has_dropout

    def _check_targets(self, w: Tensor, x: Tensor, y: Tensor, buffers: Buffers, data: Data) -> None:
        """Refuse targets for which the module has no output."""
        self._prepare_module(w, training=False)
        own = {name: b[0] for name, b in buffers.items()}
        with self._refusing(x.shape), torch.no_grad(), self._random_ops(None):
            outputs, _ = self._forward(self.unstack(w[0]), own, x, None)
            self._check_outputs(outputs, y)
        self._loss.check_targets("y", data.y, outputs.shape)
        self._loss.check_targets("y_test", data.y_test, outputs.shape)

    def _refusing(self, shape: torch.Size) -> AbstractContextManager[None]:
        return refusing(self._name, shape, self.integers)

    def init(self, seed: int) -> Tensor:
        start = self._start
        if self._make is not None:
            start = module_copies.trained(self._make(seed))
        return torch.cat([start[name].detach().reshape(-1) for name in self.shapes])

    def buffers(self) -> Buffers:
        own = {}
        for name, b in self.module.named_buffers():
            if name not in self._constant_buffers:
                own[name] = b.detach().clone()
        return own

    def _forward(
        self, parameters: dict[str, Tensor], buffers: Buffers, x: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Buffers]:
        """Return one device's outputs, and its buffers after the pass."""
        # A module updates its buffers in place (here copies: vmap must not see the stack change),
        # or replaces them, which functional_call writes back to the dict that it is given.
        own = parameters | {name: b.clone() for name, b in buffers.items()}
        state = {place: own[name] for place, name in self._places.items() if name in own}
        if x.dim() == 4 and self._runs_channels_last(x):
            # Unlike `contiguous`, this also works for one channel.
            x = torch.empty_like(x, memory_format=torch.channels_last).copy_(x)
        if not state and not self._replaces_dropout:  # a tenth of a step with a small batch
            return output_tensor(self._own.module(x), self._name), {}
        with ForwardPass(key, self._stacked, self._stacked_attention) as forward:
            outputs = functional_call(self._own.module, state, (x,), tie_weights=False)
        self._has_dropout = self._has_dropout or forward.met_dropout
        return output_tensor(outputs, self._name), {name: state[name].detach() for name in buffers}

    @contextmanager
    def _random_ops(self, keys: Tensor | None) -> Iterator[str]:
        """Draw random values by name within a block, if the module draws any.

        Yields what vmap does with random operations.
        """
        if not self._draws_values:
            yield "error"
            return
        with RandomOps(keys, self._name) as operations:
            yield "different"
        self._has_drawn = self._has_drawn or operations.drawn > 0

    def _prepare_module(self, w: Tensor, training: bool) -> None:
        """Give this thread a module of its own, on the stack's torch device, in the right mode."""
        own = self._own
        channels_last = self._runs_channels_last(w)
        mode = (w.device, w.dtype, channels_last)
        if getattr(own, "mode", None) != mode:
            constants = self._constants.cast(w.device, w.dtype)
            own.module = module_copies.copied(self.module, constants).to(w.device, w.dtype)
            faster_pooling.speed_up(own.module, channels_last)
            own.mode = mode
            own.parameters = [p for p in own.module.parameters() if p.requires_grad]
            own.training = None
        if own.training != training:
            own.module.train(training)
            own.training = training

    def _check_outputs(self, outputs: Tensor, y: Tensor) -> None:
        """Refuse outputs of one device that do not fit the targets."""
        accepted = self._loss.misfit(outputs.shape, y.shape, self._classes)
        if accepted:
            raise InputError("module", f"{self._name} with outputs {list(outputs.shape)}", accepted)

    def _device_loss(
        self, parameters: dict[str, Tensor], own: Buffers, x: Tensor, y: Tensor, key: Tensor
    ) -> tuple[Tensor, Buffers]:
        """Return one device's mean batch loss, and its buffers after the pass."""
        with self._random_ops(key):
            outputs, own = self._forward(parameters, own, x, key)
        return self._loss(outputs, y), own

    def _losses(
        self, parameters: dict[str, Tensor], x: Tensor, y: Tensor, buffers: Buffers, keys: Tensor
    ) -> Tensor:
        """Return each device's mean batch loss; update the running statistics in `buffers`."""
        if self._perceptron is not None:
            outputs = self._perceptron.outputs(parameters, x, keys)
            return _mean(self._loss.stacked_terms(outputs, y))

        self._prepare_module(next(iter(parameters.values())), training=True)
        if self._stacked:
            with self._random_ops(keys) as randomness:
                outputs, after = run_stacked(
                    self._forward, parameters, buffers, x, keys, randomness=randomness
                )
            losses: Tensor = _mean(self._loss.stacked_terms(outputs, y))
        else:
            losses, after = run_one_by_one(self._device_loss, parameters, buffers, x, y, keys)
        for name, b in after.items():
            buffers[name].copy_(b)
        return losses

    def gradient(
        self, w: Tensor, x: Tensor, y: Tensor, buffers: Buffers, keys: Tensor, out: Tensor
    ) -> None:
        with self._refusing(x.shape[1:]), torch.enable_grad():
            if not self._stacked:
                for device in range(len(w)):
                    own = {name: b[device] for name, b in buffers.items()}
                    self._device_gradient(
                        w[device], x[device], y[device], own, keys[device], out[device]
                    )
                return
            # Devices share nothing: the gradient of the sum of their losses is each device's own.
            losses = self._losses(self._leaves(w, out), x, y, buffers, keys)
            losses.sum().backward()

    def _device_gradient(
        self, w: Tensor, x: Tensor, y: Tensor, buffers: Buffers, key: Tensor, out: Tensor
    ) -> None:
        """Do the same for one device, without the overhead of a stack."""
        self._prepare_module(w, training=True)
        parameters = self._own.parameters
        with torch.no_grad():  # into the module itself: faster than to swap its parameters
            for p, part in zip(parameters, self.unstack(w).values(), strict=True):
                p.copy_(part)
        loss, after = self._device_loss({}, buffers, x, y, key)
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        torch.cat([g.reshape(-1) for g in gradients], out=out)
        for name, b in after.items():
            buffers[name].copy_(b)

    def _leaves(self, w: Tensor, out: Tensor) -> dict[str, Tensor]:
        """Return the parameters by name. A backward pass adds their gradients to `out`.

        Each gradient is released as soon as it is added; those of unused parameters stay 0.
        """
        gradients = self.unstack(out.zero_())
        leaves = {}
        for name, part in self.unstack(w).items():
            leaves[name] = part.detach().requires_grad_()
            leaves[name].grad = gradients[name]
        return leaves

    def loss(self, w: Tensor, x: Tensor, y: Tensor, buffers: Buffers, keys: Tensor) -> Tensor:
        copies = {name: b.clone() for name, b in buffers.items()}
        with self._refusing(x.shape[1:]), torch.no_grad():
            return self._losses(self.unstack(w), x, y, copies, keys)

    def scores(
        self,
        w: Tensor,
        x: Tensor,
        y: Tensor,
        buffers: Buffers,
        metrics: Sequence[Metric] = (),
    ) -> Scores:
        self._prepare_module(w, training=False)
        run = run_stacked if self._stacked else run_one_by_one
        elements = len(w) * max(1, self._largest_layer)
        samples_at_once = max(1, _EVALUATION_ELEMENTS // elements)
        loss = w.new_zeros(len(w))
        terms = w.new_zeros(len(w))
        meters = Meters(metrics)
        for part_x, part_y in zip(x.split(samples_at_once), y.split(samples_at_once), strict=True):
            with self._refusing(x.shape), torch.no_grad(), self._random_ops(None):
                part_loss, part_terms, outputs = run(
                    self._scorer(part_x, part_y), self.unstack(w), buffers
                )
                loss += part_loss
                terms += part_terms
            meters.add(outputs, part_y)
        return Scores(_mean((loss, terms)), meters.values(w))

    def _scorer(
        self, x: Tensor, y: Tensor
    ) -> Callable[[dict[str, Tensor], Buffers], tuple[Tensor, Tensor, Tensor]]:
        """Return a function that scores one device: terms of its loss, and its outputs."""

        def score(parameters: dict[str, Tensor], own: Buffers) -> tuple[Tensor, Tensor, Tensor]:
            outputs, _ = self._forward(parameters, own, x, None)
            total, count = self._loss.terms(outputs, y)
            return total, count, outputs

        return score


def _mean(terms: Terms) -> Tensor:
    total, count = terms
    return total / count.clamp_min(1)
