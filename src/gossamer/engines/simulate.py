"""The simulator: all devices, or those of one shard, in one process; all models in one tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer._core.arguments import checked
from gossamer._core.threads import limit_torch_threads, use_threads
from gossamer.algorithms import State
from gossamer.engines.batch_gradient import BatchGradient
from gossamer.engines.buffers import BufferPool
from gossamer.engines.measuring import Measuring
from gossamer.engines.mixing import StackedMix, Traffic
from gossamer.engines.plan import Parts, Plan, Record, Snapshot
from gossamer.engines.shard import LocalWeights, Shard
from gossamer.errors import DataError, Diverged, InputError
from gossamer.network.base import BoolArray, FloatArray, IntArray, Links
from gossamer.network.timing import Clock
from gossamer.network.weights import Weights

_BUFFER = "buffer/"  # prefix of the model's buffers in a snapshot
CLOCK = "engine/clock"  # name of the devices' clocks in a snapshot
STEPS = "engine/steps"  # name of the number of steps of all devices in a snapshot
_OTHER_ENGINE = "engine/events/"  # prefix of what only the events engine can resume from


@checked
class Simulator:
    """Runs a plan in this process.

    A run that resumes from a snapshot is equal, bit for bit, to one that was never interrupted.

    Args:
        plan: What to run.
        snapshot: The state to resume from. None: start at round 0.
        shard: The devices to simulate; None: all. With a shard, this is one of several simulators
            in as many processes. Models, records and snapshots are then those of its own devices;
            traffic is counted for all devices.

    Raises:
        InputError: If torch does not have the device of the plan.

    Example:
        >>> from gossamer import DPSGD, Digits, Iid, Ring, Softmax, Task
        >>> data = Digits().load()
        >>> task = Task(data, Iid().make(data.y.numpy(), devices=10, seed=0), Softmax())
        >>> simulator = Simulator(Plan(task, Ring(10), DPSGD(eta=0.1)))
        >>> simulator.advance(100)
        >>> bool(simulator.record().metrics["accuracy"].mean() > 0.9)
        True
    """

    def __init__(
        self, plan: Plan, snapshot: Snapshot | None = None, shard: Shard | None = None
    ) -> None:
        self.plan = plan
        self.round = 0
        self.threads = plan.threads_to_use()
        self._shard = shard
        self._device = _torch_device(plan.device)
        self._dtype: torch.dtype = getattr(torch, plan.dtype)
        numbers = np.arange(plan.task.devices) if shard is None else shard.devices
        self._devices = torch.from_numpy(numbers).to(self._device)
        self.worker = plan.task.worker(
            numbers, plan.seed, self._dtype, self._device, plan.measure.test
        )
        self._measuring = Measuring(plan, self.worker, numbers, shard)
        self._traffic = Traffic()
        self._buffers = BufferPool()
        self._static_mix: StackedMix | None = None
        self._last_links: Links | None = None  # links of the last round
        self._own_links = self._can_divide_links()
        self._clock: Clock | None = None
        if plan.timing is not None:
            self._clock = Clock(plan.timing, np.zeros(plan.task.devices))
        self._steps = 0  # steps of all devices, if energy is counted
        self._state: State
        if snapshot is None:
            start = self.worker.start().expand(len(self._devices), -1)
            self._state = plan.algorithm.first_state(start)
        else:
            self._restore(snapshot)

    # -- rounds -----------------------------------------------------------------------------------

    def advance(self, until: int, stop: Callable[[], bool] = lambda: False) -> None:
        elements = sum(x.numel() for x in self._state.values())
        with torch.no_grad(), use_threads(self.threads), limit_torch_threads(elements):
            while self.round < until and not stop():
                self._run_round(self.round)
                self.round += 1

    def _run_round(self, t: int) -> None:
        algorithm = self.plan.algorithm
        links = self._links(t)
        self._last_links = links
        self._traffic.start_round()
        mix = self.make_mix(links, t, self._traffic)
        away = self._away(links)
        away_rows = self._rows(away)
        steps = np.zeros(len(self._devices), dtype=np.int64)

        gradient = BatchGradient(self.worker, t, steps, arrived=self._arrived(self._now(t)))
        self._state = algorithm.next_state(self._state, gradient, mix, t)

        self._set_rows(away, away_rows)  # a device that is away does nothing
        steps[away.cpu().numpy()] = 0
        if self._clock is not None:
            self._advance_clock(self._clock, t, steps, mix.weights)
        if self.plan.energy is not None:
            self._steps += self._total(int(steps.sum()))[0]
        self._state = algorithm.compact(self._state, self._agree(mix))
        self._check_finite(t, mix)

    def make_mix(self, links: Links, t: int, traffic: Traffic) -> StackedMix:
        """Return the mix of a round. It is kept if links and weights never change."""
        rule = self.plan.algorithm.weights
        static_links = self.plan.network.period == 1
        if static_links and self._static_mix is not None:
            return replace(self._static_mix, traffic=traffic)
        weights, local = self._weights(links, t)
        mix = StackedMix(
            weights,
            self._devices,
            self._dtype.itemsize,
            traffic,
            shard=self._shard,
            local=local,
            buffers=self._buffers,
        )
        if static_links and rule.fixed:
            self._static_mix = replace(mix)
        elif t > 0:  # in the first round all devices know the state of all: they start alike
            mix.previous_weights = lambda: self._weights(self._links(t - 1), t - 1)[0]
        return mix

    def _can_divide_links(self) -> bool:
        """Return True if a shard needs the links of its own devices only."""
        if self._shard is None or not self._shard.own_links:
            return False
        return self.plan.algorithm.weights.local and self.plan.timing is None

    def _links(self, t: int) -> Links:
        """Return the links of round t: all, or those that this shard needs."""
        if self._last_links is not None and self.plan.network.period == 1:
            return self._last_links
        if self._shard is not None and self._own_links:
            return self.plan.network.links_of(t, self._shard)
        return self.plan.network.links(t)

    def _weights(self, links: Links, t: int) -> tuple[Weights, LocalWeights | None]:
        """Return the weights of round t, and the rows of this shard."""
        rule = self.plan.algorithm.weights
        if self._shard is None:
            return rule(links, t, self.plan.seed), None
        boundary = None
        if self._own_links:
            boundary = self._shard.boundary(links.a, links.b)
            links = self._shard.with_degrees(links, boundary)
        weights = rule(links, t, self.plan.seed)
        return weights, self._shard.local_weights(weights, boundary)

    def _agree(self, mix: StackedMix) -> Callable[[bool], bool]:
        """Return a function that is True if its argument is True in every shard.

        It is False in rounds in which a device does not take part.
        """

        def agree(holds: bool) -> bool:
            all_active = mix.active is None or bool(mix.active.all())
            if self._shard is None:
                return all_active and holds
            own = torch.tensor([all_active and holds], dtype=torch.uint8)
            return bool(self._shard.exchange.all_reduce(own, "min"))

        return agree

    def _now(self, t: int) -> FloatArray:
        """Return the time at which each of the engine's devices begins round t."""
        if self._clock is None:
            return np.full(len(self._devices), float(t))
        if self._shard is None:
            return self._clock.now
        return self._clock.now[self._shard.devices]

    def _arrived(self, seconds: FloatArray, devices: Tensor | None = None) -> IntArray | None:
        """Return how many samples some devices have at their times; None: all of them."""
        stream = self.plan.stream
        if stream is None:
            return None
        numbers = (self._devices if devices is None else devices).cpu().numpy()
        return stream.arrived(seconds, self.plan.task.split.sizes[numbers])

    def _advance_clock(self, clock: Clock, t: int, steps: IntArray, weights: Weights) -> None:
        """Add the duration of a round to the devices' clocks, in the order of its two halves."""
        all_steps = self._of_all_devices(steps)
        traffic = self._traffic
        if self.plan.algorithm.ends_with == "mix":
            clock.compute(t, all_steps)
        clock.exchange(t, weights, traffic.link_bytes)
        clock.average(t, weights.active, traffic.reduced_bytes, traffic.star)
        if self.plan.algorithm.ends_with == "step":
            clock.compute(t, all_steps)

    def _check_finite(self, t: int, mix: StackedMix) -> None:
        """Raise Diverged if a value of the state is not finite.

        A mix spreads such values to the neighbours. So the input of the last mix is searched first:
        a device that has one there diverged by itself, the others received it.
        """
        for x in self._per_device(self._state).values():
            # One pass over x: the sum of finite values is finite, unless it overflows.
            if math.isfinite(x.sum().item()):
                continue
            mixed = x if mix.last_input is None else mix.last_input
            for suspect in (mixed, x):
                not_finite = ~torch.isfinite(suspect).view(len(x), -1).all(1)
                if not_finite.any():
                    device = int(self._devices[not_finite.nonzero()[0, 0]])
                    raise Diverged(t + 1, device, received=suspect is not mixed)

    # -- devices that are away, and rows of all devices -------------------------------------------

    def _away(self, links: Links) -> Tensor:
        """Return the rows of the devices that are away in a round."""
        if links.active is None:
            return torch.empty(0, dtype=torch.int64, device=self._device)
        away = np.flatnonzero(~self._own(links.active))
        return torch.from_numpy(away).to(self._device)

    def _own(self, active: BoolArray) -> BoolArray:
        """Return the entries of this shard's devices."""
        if self._shard is None:
            return active
        return active[self._shard.devices]

    def _rows(self, rows: Tensor) -> dict[str, Tensor]:
        """Return copies of some rows of all tensors that have one row per device."""
        if len(rows) == 0:
            return {}
        return {name: x[rows] for name, x in self._per_device(self._tensors()).items()}

    def _set_rows(self, rows: Tensor, values: dict[str, Tensor]) -> None:
        tensors = self._tensors()
        for name, x in values.items():
            tensors[name][rows] = x

    def _per_device(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors with one row per device; others have one constant row for all."""
        return {name: x for name, x in tensors.items() if len(x) == len(self._devices)}

    def _tensors(self) -> dict[str, Tensor]:
        """Return the state of the algorithm and the buffers of the model, not copied."""
        buffers = {_BUFFER + name: x for name, x in self.worker.buffers.items()}
        return self._state | buffers

    def _of_all_devices(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return one value per device of the network, from one per device of each shard."""
        if self._shard is None:
            return x
        return self._shard.sum_rows(x)

    def _total(self, *values: int) -> list[int]:
        """Return the sums over all shards."""
        if self._shard is None:
            return list(values)
        return self._shard.sum(np.array(values)).tolist()

    # -- results ----------------------------------------------------------------------------------

    def models(self) -> Tensor:
        return self.plan.algorithm.models(self._state)

    def state_dict(self) -> dict[str, Tensor]:
        self._buffers.clear()
        self.worker.free_buffers()
        named = self.plan.task.learner.unstack(self.models()) | self.worker.buffers
        return {name: x.detach().cpu().contiguous() for name, x in named.items()}

    def record(self) -> Record:
        with torch.no_grad(), use_threads(self.threads):
            w = self._measured_models(self.round)
            record = self._measuring.record(self.round, w, self._active_devices())
        seconds = None
        if self._clock is not None:
            seconds = float(self._clock.now.max())
        messages, size = self._total(self._traffic.messages, self._traffic.bytes)
        joules = self._joules(self._steps, size)
        return replace(record, messages=messages, bytes=size, seconds=seconds, joules=joules)

    def _joules(self, steps: int, size: int) -> float | None:
        """Return what the steps and all messages so far cost; None if energy is not counted."""
        if self.plan.energy is None:
            return None
        return self.plan.energy.joules(steps, size)

    def _measured_models(self, t: int) -> Tensor:
        """Return the models at the end of the last round, or in the middle of round t.

        This changes neither state nor traffic.
        """
        if not self.plan.measures_halfway or t == 0:
            return self.models()
        links = self._links(t)
        mix = self.make_mix(links, t, Traffic())
        buffers = {name: x.clone() for name, x in self.worker.buffers.items()}
        gradient = BatchGradient(self.worker, t, arrived=self._arrived(self._now(t)))
        w = self.plan.algorithm.halfway_models(self._state, gradient, mix, t)
        for name, x in buffers.items():
            self.worker.buffers[name].copy_(x)
        if links.active is None:
            return w
        active = torch.from_numpy(self._own(links.active)).to(self._device)
        return torch.where(active[:, None], w, self.models())

    def _active_devices(self) -> BoolArray | None:
        """Return which devices took part in the round that is measured; None: all.

        Only the merged model depends on it.
        """
        t = self.round
        if t == 0 or not self.plan.measure.merged:
            return None
        links = self._last_links
        if self.plan.measures_halfway:
            links = self._links(t)
        elif links is None:  # resumed
            links = self._links(t - 1)
        if links.active is None:
            return None
        active = self._of_all_devices(self._own(links.active).astype(np.uint8)) > 0
        if active.all() or not active.any():
            return None
        return active

    # -- snapshots --------------------------------------------------------------------------------

    def snapshot(self, copy: bool = True) -> Snapshot:
        tensors = {}
        for name, x in self._tensors().items():
            tensors[name] = x.detach().to("cpu", copy=copy).contiguous()
        if self._clock is not None:
            tensors[CLOCK] = torch.from_numpy(self._clock.now.copy())
        if self.plan.energy is not None:
            tensors[STEPS] = torch.tensor([self._steps])
        messages, size = self._total(self._traffic.messages, self._traffic.bytes)
        return Snapshot(self.round, messages, size, tensors)

    def _restore(self, snapshot: Snapshot) -> None:
        self.round = snapshot.round
        if self._shard is None or self._shard.number == 0:
            self._traffic = Traffic(snapshot.messages, snapshot.bytes)
        self._state = {}
        for name, x in snapshot.tensors.items():
            if name == CLOCK:
                if self._clock is not None:
                    self._clock.now[:] = x.numpy()
            elif name == STEPS:
                self._steps = int(x[0])
            elif name.startswith(_OTHER_ENGINE):
                raise DataError(
                    "the checkpoint is of the events engine; resume it there: --engine events"
                )
            elif name.startswith(_BUFFER):
                self.worker.buffers[name.removeprefix(_BUFFER)].copy_(x)
            else:
                self._check_rows(name, x)
                self._state[name] = x.to(self._device, copy=True)

    def _check_rows(self, name: str, x: Tensor) -> None:
        if x.dim() == 0 or len(x) not in (1, len(self._devices)):
            raise DataError(
                f"the checkpoint holds {name} of shape {list(x.shape)}, "
                f"not one row for each of {len(self._devices)} devices"
            )

    def parts(self, what: Literal["state", "models"]) -> Parts | None:
        """Return None: `snapshot` and `state_dict` copy nothing."""
        return None

    def close(self) -> None:
        """Do nothing: a simulator holds nothing outside this process."""


def _torch_device(name: str) -> torch.device:
    """Return a torch device, or refuse one that this machine does not have."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        raise InputError("device", name, '"cpu", or a torch device of this machine') from error
    return device
