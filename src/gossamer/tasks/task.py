"""A task: data, how it is split among the devices, and the model that is learned."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer import draws
from gossamer._core.threads import available_threads, limit_torch_threads, run_in_threads
from gossamer.backend import Batches, Samples, Scratch
from gossamer.errors import InputError
from gossamer.tasks import splits
from gossamer.tasks.data import Data
from gossamer.tasks.learner import Buffers, Learner, Scores
from gossamer.tasks.splits import Split

_DRAWN_AT_ONCE = 1 << 15
_WORTH_A_THREAD = 300_000  # numbers of a batch


class Model(Protocol):
    """What a model's description offers: the learner for data of some shape."""

    def learner(self, data: Data) -> Learner: ...


@dataclass(frozen=True)
class Task:
    """What is learned. `batch`: samples a step, drawn with replacement from the device's own; 0: all of them each time.

    >>> from gossamer.tasks import Digits, Iid, Softmax
    >>> data = Digits().load()
    >>> Task(data, Iid().make(data.y.numpy(), devices=10, seed=0), Softmax(), batch=32).learner.parameters
    650
    """

    data: Data
    split: Split
    model: Model
    batch: int = 32

    def __post_init__(self) -> None:
        if self.batch < 0:
            raise InputError(
                "batch",
                self.batch,
                "a whole number of at least 1, or 0 for all of a device's samples",
            )
        if self.batch == 0 and len(set(self.split.sizes[self.split.sizes > 0].tolist())) > 1:
            raise InputError(
                "batch",
                0,
                "a whole number of at least 1, since devices hold different numbers of samples",
            )
        # What follows is checked here once, since nothing is when batches are read.
        first, last = int(self.split.index.min()), int(self.split.index.max())
        if first < 0 or last >= self.data.samples:
            number = first if first < 0 else last
            raise InputError(
                "split", f"sample {number}", f"sample numbers from 0 to {self.data.samples - 1}"
            )
        y = self.data.y
        if len(y) != self.data.samples:
            raise InputError(
                "y", f"{len(y)} targets", f"as many as x has samples, {self.data.samples}"
            )
        if (
            self.data.classes is not None
            and (wrong := y[(y < 0) | (y >= self.data.classes)]).numel()
        ):
            raise InputError("y", int(wrong[0]), f"labels from 0 to {self.data.classes - 1}")

    @property
    def devices(self) -> int:
        return self.split.devices

    @cached_property
    def learner(self) -> Learner:
        return self.model.learner(self.data)

    def only(self, devices: NDArray[np.int64]) -> Task:
        """The same task with the training samples of some devices alone, for a process that holds no others."""
        held = np.concatenate([self.split.of(int(device)) for device in devices])
        samples, index = np.unique(held, return_inverse=True)
        sizes = np.zeros(self.devices, dtype=np.int64)
        sizes[devices] = self.split.sizes[devices]
        chosen = torch.from_numpy(samples)
        data = replace(self.data, x=self.data.x[chosen], y=self.data.y[chosen])
        return replace(
            self,
            data=data,
            split=Split(index.astype(np.int64), np.concatenate([[0], np.cumsum(sizes)])),
        )

    def worker(
        self,
        devices: NDArray[np.int64],
        seed: int,
        dtype: torch.dtype,
        place: torch.device,
        test: int = 0,
    ) -> Worker:
        """What trains and scores some of the devices; `test` limits the test samples (0: all)."""
        return Worker(self, devices, seed, dtype, place, test)


class _Turn(NamedTuple):
    """Some rows that are worked on together, and the keys of what is random in the model."""

    some: slice
    samples: Tensor  # their numbers [rows, batch]
    keys: Tensor


class Worker:
    """Trains and scores the rows of the devices that it was made for, with memory that it takes once."""

    def __init__(
        self,
        task: Task,
        devices: NDArray[np.int64],
        seed: int,
        dtype: torch.dtype,
        place: torch.device,
        test: int,
    ) -> None:
        self.learner = task.learner
        self._split, self._batch, self._devices, self._seed = task.split, task.batch, devices, seed
        self._place, self._dtype = place, dtype
        self._samples = Samples.of(self._inputs(task.data.x))
        self._y = self._targets(task.data.y)
        x_test, y_test = task.data.x_test, task.data.y_test
        if 0 < test < len(x_test):  # else no copy
            chosen = test_subset(len(x_test), test)
            x_test, y_test = x_test[chosen], y_test[chosen]
        self._x_test, self._y_test = self._inputs(x_test), self._targets(y_test)
        self.buffers: Buffers = {
            name: b.to(place, dtype if b.is_floating_point() else b.dtype)
            .expand(len(devices), *b.shape)
            .contiguous()
            for name, b in self.learner.buffers().items()
        }
        self._scratch = Scratch()
        self._gradient: Tensor | None = None
        self._whole: NDArray[np.int64] | None = (
            None  # all samples of all devices, where a batch is all of them
        )
        self._drawn_ahead: dict[int, tuple[int, NDArray[np.int64]]] = {}

    def _inputs(self, x: Tensor) -> Tensor:
        return self.learner.features(x.to(self._place, self._dtype)).contiguous()

    def _targets(self, y: Tensor) -> Tensor:
        return y.to(self._place, self._dtype if y.is_floating_point() else torch.int64)

    def start(self) -> Tensor:
        """The shared start of all devices, one row: [1, parameters]."""
        return self.learner.init(self._seed).to(self._place, self._dtype)[None]

    def _turns(self, t: int, step: int, rows: Tensor | None) -> list[_Turn]:
        """The batches of round t, local step `step`, for some rows at a time.

        So few at a time that they stay in the processor's cache until they are used, and that many devices need no memory
        for the batches of all.
        """
        devices = self._devices if rows is None else self._devices[rows.cpu().numpy()]
        index = torch.from_numpy(self._index(t, step, devices, ahead=rows is None)).to(self._place)
        keys = torch.from_numpy(self._keys(t, step, devices).view(np.int64)).to(self._place)
        batch = index.shape[1] * self._samples.x[0].numel()
        turns = max(1, math.ceil(len(devices) * batch / self.learner.at_once))
        threads = available_threads()
        if (
            self.learner.concurrent and len(devices) * batch >= _WORTH_A_THREAD * threads
        ):  # as many turns for each
            turns = threads * math.ceil(turns / threads)
        at_once = math.ceil(len(devices) / turns)
        parts = (slice(first, first + at_once) for first in range(0, len(devices), at_once))
        return [_Turn(some, index[some], keys[some]) for some in parts]

    def _keys(self, t: int, step: int, devices: NDArray[np.int64]) -> NDArray[np.uint64]:
        if not self.learner.draws:
            return np.zeros(len(devices), np.uint64)
        return draws.row(self._seed, f"module/{step}", t, self._split.devices)[devices]

    def _gathered(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return the batches x and y."""
        return self._batches(index).gather()

    def _batches(self, index: Tensor) -> Batches:
        return Batches(self._samples, self._y, index, self._scratch)

    def _index(
        self, t: int, step: int, devices: NDArray[np.int64], ahead: bool
    ) -> NDArray[np.int64]:
        """The samples of each device's batch. A few rounds are drawn at once: a draw is by name, so when does not matter."""
        if not self._batch:
            if ahead and self._whole is not None:
                return self._whole
            whole = np.stack([self._split.of(int(device)) for device in devices])
            self._whole = whole if ahead else self._whole
            return whole
        if not ahead:
            return splits.batch(self._split, self._seed, t, step, self._batch, devices)
        first, drawn = self._drawn_ahead.get(step, (0, np.empty((0, 0, 0), dtype=np.int64)))
        if not first <= t < first + len(drawn):
            rounds = t + np.arange(max(1, _DRAWN_AT_ONCE // (len(devices) * self._batch)))
            drawn = splits.batch(
                self._split, self._seed, rounds[:, None, None], step, self._batch, devices
            )
            self._drawn_ahead[step] = first, drawn = t, drawn
        return drawn[t - first]

    def gradient(self, w: Tensor, t: int, step: int = 0, rows: Tensor | None = None) -> Tensor:
        """Each row's stochastic gradient; the next call may overwrite the result."""
        buffers = (
            self.buffers if rows is None else {name: b[rows] for name, b in self.buffers.items()}
        )
        if self._gradient is None or len(self._gradient) < len(w):
            self._gradient = w.new_empty(w.shape)
        result = self._gradient[: len(w)]

        def one(turn: _Turn) -> None:
            some, samples, keys = turn
            own = {name: b[some] for name, b in buffers.items()}
            batches = self._batches(samples)
            self.learner.batch_gradient(w[some], batches, own, keys, result[some])

        self._for_each(one, self._turns(t, step, rows))
        if rows is not None:
            for name, b in buffers.items():
                self.buffers[name][rows] = b
        return result

    def _for_each(self, one: Callable[[_Turn], None], turns: list[_Turn]) -> None:
        """One after the other, or in threads."""
        jobs = [partial(one, turn) for turn in turns]
        if self.learner.concurrent and self._place.type == "cpu":
            run_in_threads(jobs)
        else:
            for job, turn in zip(jobs, turns, strict=True):
                with limit_torch_threads(turn.samples.numel() * self._samples.x[0].numel() // 2):
                    job()

    def loss(self, w: Tensor, t: int, step: int = 0) -> Tensor:
        """Each row's loss on the same batch."""
        return torch.cat(
            [
                self.learner.loss(
                    w[some],
                    *self._gathered(samples),
                    {name: b[some] for name, b in self.buffers.items()},
                    keys,
                )
                for some, samples, keys in self._turns(t, step, None)
            ]
        )

    def conjugate(self, z: Tensor) -> Tensor:
        """Where the gradient of each row's whole loss, over all of its device's samples, is z."""
        if self._batch:
            accepted = '0, with model = "least-squares" and as many samples on every device: the dual is that of the whole loss'
            raise InputError("batch", self._batch, accepted)
        return torch.cat(
            [
                self.learner.conjugate(z[some], *self._gathered(index))
                for some, index, _ in self._turns(0, 0, None)
            ]
        )

    def scores(self, w: Tensor) -> Scores:
        """Every row on the test samples."""
        return self.learner.scores(w, self._x_test, self._y_test, self.buffers)


def test_subset(samples: int, wanted: int) -> Tensor:
    """Which test samples are used: a fixed named choice, the same for every seed, so that runs are scored alike."""
    if not 0 < wanted < samples:
        return torch.arange(samples)
    return torch.from_numpy(np.sort(draws.permutation(samples, 0, "test subset")[:wanted]))
