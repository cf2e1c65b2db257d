"""The simulator: every device, or a part of them, in one process; all their models in one tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gossamer._core.threads import limit_torch_threads, use_threads
from gossamer.algorithms import State
from gossamer.engines.memory import Spare
from gossamer.engines.mixing import StackedMix, Traffic
from gossamer.engines.part import Part
from gossamer.engines.plan import Plan, Record, Snapshot
from gossamer.errors import Diverged, InputError
from gossamer.mirror import IdentityMap, MirrorMap, root, signed_power_
from gossamer.network.base import BoolArray, IntArray, Links
from gossamer.network.timing import Clock
from gossamer.network.weights import Weights
from gossamer.tasks import Worker

_BUFFER = "buffer/"
CLOCK = "engine/clock"


@dataclass(frozen=True)
class BatchGradient:
    """`algorithms.Gradient` of one round."""

    worker: Worker
    t: int
    steps: IntArray | None = None  # of each device, counted for its clock

    def __call__(self, w: Tensor, step: int = 0, rows: Tensor | None = None) -> Tensor:
        if self.steps is not None:
            self.steps[slice(None) if rows is None else rows.cpu().numpy()] += 1
        return self.worker.gradient(w, self.t, step, rows)

    def loss(self, w: Tensor, step: int = 0) -> Tensor:
        return self.worker.loss(w, self.t, step)

    def conjugate(self, z: Tensor) -> Tensor:
        if self.steps is not None:
            self.steps[:] += 1
        return self.worker.conjugate(z)


class Simulator:
    """Runs a plan in this process. A run from a snapshot goes on bit for bit as if it had never stopped.

    With a `part` it holds the devices of that part, and is one of several that do the same, each in its own process: what it
    gives (models, records, snapshots) is then of its own devices, in ascending number. It counts the traffic of all.

    >>> from gossamer import DPSGD, Digits, Iid, Ring, Softmax, Task
    >>> data = Digits().load()
    >>> task = Task(data, Iid().make(data.y.numpy(), devices=10, seed=0), Softmax())
    >>> simulator = Simulator(Plan(task, Ring(10), DPSGD(eta=0.1)))
    >>> simulator.advance(100)
    >>> bool(simulator.record().accuracy.mean() > 0.9)
    True
    """

    def __init__(
        self, plan: Plan, snapshot: Snapshot | None = None, part: Part | None = None
    ) -> None:
        self.threads = plan.threads_to_use()
        self.plan, self.round, self._part = plan, 0, part
        self._place, self._dtype = _place(plan.device), getattr(torch, plan.dtype)
        numbers = np.arange(plan.task.devices) if part is None else part.devices
        self._devices = torch.from_numpy(numbers).to(self._place)
        self._worker = plan.task.worker(
            numbers, plan.seed, self._dtype, self._place, plan.measure.test
        )
        self._traffic, self._spare = Traffic(), Spare()
        self._static_mix: StackedMix | None = None
        self._clock = (
            None if plan.timing is None else Clock(plan.timing, np.zeros(plan.task.devices))
        )
        if snapshot is None:
            self._state: State = plan.algorithm.init(
                self._worker.start().expand(len(self._devices), -1)
            )
        else:
            self.round = snapshot.round
            self._traffic = Traffic(snapshot.messages, snapshot.bytes)
            tensors = {
                name: x.to(self._place, copy=True)
                for name, x in snapshot.tensors.items()
                if name != CLOCK
            }
            self._state = {name: x for name, x in tensors.items() if not name.startswith(_BUFFER)}
            if self._clock:
                self._clock.now[:] = snapshot.tensors[CLOCK].numpy()
            for name, b in self._worker.buffers.items():
                b.copy_(tensors[_BUFFER + name])

    def advance(self, until: int, stop: Callable[[], bool] = lambda: False) -> None:
        """Run rounds up to `until`; stop between two rounds when `stop` says so."""
        elements = sum(x.numel() for x in self._state.values())
        with torch.no_grad(), use_threads(self.threads), limit_torch_threads(elements):
            while self.round < until and not stop():
                self._run_round(self.round)
                self.round += 1

    def _run_round(self, t: int) -> None:
        links = self.plan.network.links(t)
        mix = self._mix(links, t, self._traffic)
        active = self._own(links.active)
        away = (
            None
            if active is None or active.all()
            else torch.from_numpy(np.flatnonzero(~active)).to(self._place)
        )
        before = {} if away is None else self._rows(away)
        steps = np.zeros(len(self._devices), dtype=np.int64)
        self._traffic.over_link, self._traffic.averaged = 0.0, 0
        self._state = self.plan.algorithm.round(
            self._state, BatchGradient(self._worker, t, steps), mix, t
        )
        if self._clock:
            self._tick(
                self._clock,
                t,
                self._of_all(steps if active is None else steps * active),
                mix.weights,
            )
        if away is not None:  # a device that is away does nothing: its rows are as they were
            for name, rows in before.items():
                self._all_tensors()[name][away] = rows
        all_active = mix.active is None or bool(mix.active.all())
        self._state = self.plan.algorithm.compact(
            self._state, lambda holds: self._everywhere(all_active and holds)
        )
        self._check_finite(t, mix)

    def _tick(self, clock: Clock, t: int, steps: IntArray, weights: Weights) -> None:
        """Let the clocks run on by a round: what it ends with comes last."""
        sent, ends_with_step = self._traffic, self.plan.algorithm.ends_with == "step"
        if not ends_with_step:
            clock.compute(t, steps)
        clock.exchange(t, weights, sent.over_link)
        clock.average(t, weights.active, sent.averaged, sent.star)
        if ends_with_step:
            clock.compute(t, steps)

    def _mix(self, links: Links, t: int, traffic: Traffic) -> StackedMix:
        rule, unchanging = self.plan.algorithm.weights, self.plan.network.period == 1
        if unchanging and self._static_mix is not None:
            return replace(self._static_mix, traffic=traffic)
        itemsize = torch.empty((), dtype=self._dtype).element_size()
        weights = rule(links, t, self.plan.seed)
        mix = StackedMix(weights, self._devices, itemsize, traffic, spare=self._spare)
        if self._part is not None:
            mix = replace(mix, part=self._part, near=self._part.near(weights))
        if unchanging and rule.fixed:  # others draw anew in every round
            self._static_mix = replace(mix)
        elif t:  # all start alike: in the first round everybody knows what everybody has
            mix.before = lambda: rule(self.plan.network.links(t - 1), t - 1, self.plan.seed)
        return mix

    def _everywhere(self, holds: bool) -> bool:
        """True if something holds in every process that has some of the devices."""
        if self._part is None:
            return holds
        answers = self._part.exchange.gather(torch.tensor([holds], dtype=torch.uint8))
        return all(bool(answer) for answer in answers)

    def _own(self, active: BoolArray | None) -> BoolArray | None:
        return active if active is None or self._part is None else active[self._part.devices]

    def _of_all(self, x: IntArray) -> IntArray:
        """One number a device, of all devices, from those of this part's and the others'."""
        if self._part is None:
            return x
        of_all = np.zeros(self.plan.task.devices, dtype=x.dtype)
        of_all[self._part.devices] = x
        return torch.stack(self._part.exchange.gather(torch.from_numpy(of_all))).sum(0).numpy()

    def _all_tensors(self) -> dict[str, Tensor]:
        return self._state | {_BUFFER + name: b for name, b in self._worker.buffers.items()}

    def _rows(self, rows: Tensor) -> dict[str, Tensor]:
        return {name: x[rows] for name, x in self._stacked(self._all_tensors()).items()}

    def _stacked(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Those with a row a device; a tensor of a single row is shared by all and never changes."""
        return {name: x for name, x in tensors.items() if len(x) == len(self._devices)}

    def _check_finite(self, t: int, mix: StackedMix) -> None:
        for x in self._stacked(self._state).values():
            # One pass: a sum is finite unless a part is not (or it overflows itself, which the second look settles).
            if not math.isfinite(x.sum().item()):
                mixed = x if mix.mixed is None else mix.mixed
                for suspect in (mixed, x):  # in the mix it spreads to those who are sound
                    wrong = ~torch.isfinite(suspect).view(len(x), -1).all(1)
                    if wrong.any():
                        raise Diverged(
                            t + 1,
                            int(self._devices[wrong.nonzero()[0, 0]]),
                            received=suspect is not mixed,
                        )

    def models(self) -> Tensor:
        """All models [devices, parameters], after the last round."""
        return self.plan.algorithm.models(self._state)

    def state_dict(self) -> dict[str, Tensor]:
        """The same by the names of their parts, each [devices, …], with the buffers that a module has."""
        named = self.plan.task.learner.unstack(self.models()) | self._worker.buffers
        return {name: part.detach().cpu().contiguous() for name, part in named.items()}

    def close(self) -> None: ...

    def record(self) -> Record:
        """Measure now: accuracy, loss and distances, after the step or after the mix as the plan says."""
        plan, t = self.plan, self.round
        with torch.no_grad(), use_threads(self.threads):
            if plan.measure.at == f"after_{plan.algorithm.ends_with}" or t == 0:
                w = self.models()
            else:  # the models in the middle of the coming round; nothing of it is counted or kept
                links = plan.network.links(t)
                mix = self._mix(links, t, Traffic())
                buffers = {name: b.clone() for name, b in self._worker.buffers.items()}
                w = plan.algorithm.halfway(self._state, BatchGradient(self._worker, t), mix, t)
                for name, b in buffers.items():
                    self._worker.buffers[name].copy_(b)
                if links.active is not None:
                    here = torch.from_numpy(self._own(links.active)).to(self._place)
                    w = torch.where(here[:, None], w, self.models())
            scores = self._worker.scores(w)
            mirror = plan.algorithm.mirror_at(t)
            distance = (w - self._mean(w, IdentityMap())).norm(dim=1)
            to_power = distance
            if mirror.power != 1:
                to_power = (w - self._mean(w, mirror)).norm(dim=1)
        accuracy, loss, distance, to_power = (
            x.double().cpu().numpy() for x in (scores.accuracy, scores.loss, distance, to_power)
        )
        seconds = None if self._clock is None else float(self._clock.now.max())
        return Record(
            t,
            accuracy,
            loss,
            distance,
            to_power,
            self._traffic.messages,
            self._traffic.bytes,
            seconds,
        )

    def _mean(self, w: Tensor, mirror: MirrorMap) -> Tensor:
        """Return the mean of all devices' models in the dual of a mirror map."""
        if self._part is None:
            return mirror.mean(w)
        gather = self._part.exchange.gather
        x = w.double().cpu()
        p = mirror.power
        if p is None:
            dual = torch.stack(gather(mirror.to_dual(x).sum(0))).sum(0)
            return mirror.to_primal(dual / self.plan.task.devices).to(w)
        largest = torch.stack(gather(x.abs().amax(0))).amax(0)
        scale = torch.where(largest == 0, 1.0, largest)
        total = torch.stack(gather(signed_power_(x / scale, p).sum(0))).sum(0)
        return (root(total / self.plan.task.devices, p) * scale).to(w)

    def snapshot(self) -> Snapshot:
        """All that is needed to go on from here."""
        # copies: the coming rounds may overwrite the state
        tensors = {
            name: x.detach().to("cpu", copy=True).contiguous()
            for name, x in self._all_tensors().items()
        }
        if self._clock:
            tensors[CLOCK] = torch.from_numpy(self._clock.now.copy())
        return Snapshot(self.round, self._traffic.messages, self._traffic.bytes, tensors)


def _place(name: str) -> torch.device:
    try:
        place = torch.device(name)
        torch.empty(1, device=place).item()
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            "device", name, '"cpu", or a device of torch\'s that this machine has'
        ) from error
    return place
