"""Train and score the models of some devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer import draws
from gossamer._core.memory import refuse_too_large
from gossamer._core.threads import available_threads, limit_torch_threads, run_in_threads
from gossamer.backend import Batches, Samples, Scratch
from gossamer.errors import InputError
from gossamer.tasks import splits
from gossamer.tasks.data import Data
from gossamer.tasks.learner import Buffers, Learner, Scores
from gossamer.tasks.metric import Metric
from gossamer.tasks.splits import Split

_SAMPLES_DRAWN_AT_ONCE = 1 << 15  # sample numbers of one draw: several rounds of few devices
_SAMPLES_DRAWN_AHEAD = 1 << 20  # sample numbers that `draw_samples` draws, at most: 8 MB
# Memory for one sample number, with the intermediate values of its draw.
_BYTES_PER_DRAW = 32
# Copies of the models in memory, at least: models and gradients.
_COPIES = 2


class _Chunk(NamedTuple):
    """Some rows that are worked on together."""

    rows: slice
    samples: Tensor  # numbers of their samples: [rows, batch]
    keys: Tensor  # random bits of the rows, for what is random in the model


class Worker:
    """Trains and scores the devices that it is made for, in buffers that it allocates once.

    Args:
        data: Training and test samples.
        split: Which device holds which training samples.
        learner: The model.
        batch: Samples per step (0: all of the device's).
        devices: Numbers of the devices, one per row of the models.
        seed: The seed of the run.
        dtype: Type of models and samples.
        torch_device: The torch device to compute on.
        test: Number of test samples to score on (0: all).
    """

    def __init__(
        self,
        data: Data,
        split: Split,
        learner: Learner,
        batch: int,
        devices: NDArray[np.int64],
        seed: int,
        dtype: torch.dtype,
        torch_device: torch.device,
        test: int,
    ) -> None:
        _check_memory(learner.parameters, len(devices), dtype, torch_device)
        _check_batch(batch, len(devices), data, dtype)
        self.learner = learner
        self._batch = batch
        self._devices = devices
        self._all_devices = split.devices
        self._seed = seed
        self._torch_device = torch_device
        self._dtype = dtype
        self._samples = Samples.of(self._inputs(data.x))
        self._targets = self._cast(data.y)
        x_test = data.x_test
        y_test = data.y_test
        if 0 < test < len(x_test):  # else no copy
            chosen = test_subset(len(x_test), test)
            x_test = x_test[chosen]
            y_test = y_test[chosen]
        self._x_test = self._inputs(x_test)
        self._y_test = self._cast(y_test)
        self.buffers: Buffers = {}
        for name, b in learner.buffers().items():
            cast = b.to(torch_device, dtype if b.is_floating_point() else b.dtype)
            self.buffers[name] = cast.expand(len(devices), *b.shape).contiguous()
        self._scratch = Scratch()
        self._gradient: Tensor | None = None
        self._batch_draws = _BatchDraws(split, seed, batch, devices)
        self.samples = len(data.x)

    def _inputs(self, x: Tensor) -> Tensor:
        dtype = self._dtype
        if self.learner.integers and not x.is_floating_point():
            dtype = torch.int64
        return self.learner.features(x.to(self._torch_device, dtype)).contiguous()

    def _cast(self, y: Tensor) -> Tensor:
        dtype = self._dtype
        if y.dtype == torch.int64:
            dtype = torch.int64
        return y.to(self._torch_device, dtype)

    def start(self) -> Tensor:
        """Return the start that all devices share: [1, parameters]."""
        return self.learner.init(self._seed).to(self._torch_device, self._dtype)[None]

    def draw_samples(
        self, t: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> NDArray[np.int64] | None:
        """Return the samples of the first step of some rounds, to be given to `gradient`.

        Many small calls of `gradient` are faster if their samples are drawn at once.

        Args:
            t: The rounds.
            rows: Which of the worker's devices they are rounds of.

        Returns:
            Sample numbers [rounds, batch]; None if it is better to let `gradient` draw: the batches
            are whole, or drawing takes longer than the calls.
        """
        if not 0 < len(t) * self._batch <= _SAMPLES_DRAWN_AHEAD:
            return None
        return self._batch_draws.of(t, 0, self._devices[rows])

    def gradient(
        self,
        w: Tensor,
        t: int | NDArray[np.int64],
        step: int = 0,
        rows: Tensor | None = None,
        samples: NDArray[np.int64] | None = None,
        arrived: NDArray[np.int64] | None = None,
    ) -> Tensor:
        """Return each model's stochastic gradient. The next call may overwrite the result.

        Args:
            w: The models, one per row.
            t: The round; or, with `rows`, the round of each.
            step: Local step within the round.
            rows: Which of the worker's devices the models are of (None: all).
            samples: What `draw_samples` returned for these rows (None: draw them now).
            arrived: How many samples each device has so far; None: all.
        """
        buffers = self.buffers
        if rows is not None:
            buffers = {name: b[rows] for name, b in self.buffers.items()}
        if self._gradient is None or len(self._gradient) < len(w):
            self._gradient = w.new_empty(w.shape)
        result = self._gradient[: len(w)]

        def compute(chunk: _Chunk) -> None:
            own = {name: b[chunk.rows] for name, b in buffers.items()}
            batches = self._batches(chunk)
            self.learner.batch_gradient(w[chunk.rows], batches, own, chunk.keys, result[chunk.rows])

        self._for_each(compute, self._chunks(t, step, rows, samples, arrived))
        if rows is not None:
            for name, b in buffers.items():
                self.buffers[name][rows] = b
        return result

    def free_buffers(self) -> None:
        """Free the memory of gradients, before much memory is needed elsewhere.

        The next call of `gradient` allocates it again.
        """
        self._gradient = None

    def loss(
        self,
        w: Tensor,
        t: int | NDArray[np.int64],
        step: int = 0,
        rows: Tensor | None = None,
        arrived: NDArray[np.int64] | None = None,
    ) -> Tensor:
        """Return each model's loss on the batch that its gradient is computed from.

        Args:
            w: The models, one per row.
            t: The round; or, with `rows`, the round of each.
            step: Local step within the round.
            rows: Which of the worker's devices the models are of (None: all).
            arrived: How many samples each device has so far; None: all.
        """
        buffers = self.buffers
        if rows is not None:
            buffers = {name: b[rows] for name, b in self.buffers.items()}
        losses = []
        for chunk in self._chunks(t, step, rows, arrived):
            own = {name: b[chunk.rows] for name, b in buffers.items()}
            x, y = self._batches(chunk).gather()
            losses.append(self.learner.loss(w[chunk.rows], x, y, own, chunk.keys))
        return torch.cat(losses)

    def conjugate(self, z: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return where the gradient of each device's loss, over all of its samples, is z.

        Args:
            z: The gradients, one row per device.
            rows: Which of the worker's devices they are of (None: all).

        Raises:
            InputError: If the batches are not whole, or the model has no conjugate.
        """
        if self._batch:
            accepted = (
                '0, with model = "least-squares" and as many samples on every device: '
                "the dual is that of the whole loss"
            )
            raise InputError("batch", self._batch, accepted)
        found = []
        for chunk in self._chunks(0, 0, rows):
            x, y = self._batches(chunk).gather()
            found.append(self.learner.conjugate(z[chunk.rows], x, y))
        return torch.cat(found)

    def scores(
        self, w: Tensor, metrics: Sequence[Metric] = (), buffers: Buffers | None = None
    ) -> Scores:
        """Score models on the test samples.

        Args:
            w: The models of all of the worker's devices, or others if their buffers are given.
            metrics: What to measure beside the loss.
            buffers: Their buffers; None: those of the worker's devices.
        """
        if buffers is None:
            buffers = self.buffers
        return self.learner.scores(w, self._x_test, self._y_test, buffers, metrics)

    def _chunks(
        self,
        t: int | NDArray[np.int64],
        step: int,
        rows: Tensor | None,
        samples: NDArray[np.int64] | None = None,
        arrived: NDArray[np.int64] | None = None,
    ) -> list[_Chunk]:
        """Return the batches of a step, for some rows at a time.

        The batches of a chunk stay in the processor's cache until they are used, and many devices
        need no memory for the batches of all.
        """
        devices = self._devices
        if rows is not None:
            devices = devices[rows.cpu().numpy()]
        if samples is None:
            chosen = None if rows is None else devices
            samples = self._batch_draws.of(t, step, chosen, arrived)
        index = torch.from_numpy(samples).to(self._torch_device)
        keys = torch.from_numpy(self._keys(t, step, devices).view(np.int64)).to(self._torch_device)
        elements = index.numel() * self._sample_elements()
        count = max(1, math.ceil(elements / self.learner.at_once))
        threads = available_threads()
        if self.learner.concurrent and elements >= self.learner.elements_per_thread * threads:
            count = threads * math.ceil(count / threads)  # a multiple of the number of threads
        length = math.ceil(len(devices) / count)
        chunks = []
        for first in range(0, len(devices), length):
            part = slice(first, first + length)
            chunks.append(_Chunk(part, index[part], keys[part]))
        return chunks

    def _sample_elements(self) -> int:
        return self.learner.sample_elements or self._samples.x[0].numel()

    def _keys(
        self, t: int | NDArray[np.int64], step: int, devices: NDArray[np.int64]
    ) -> NDArray[np.uint64]:
        if not self.learner.draws:
            return np.zeros(len(devices), np.uint64)
        if not isinstance(t, int):
            return draws.bits(self._seed, f"module/{step}", t, devices)
        return draws.row(self._seed, f"module/{step}", t, self._all_devices)[devices]

    def _batches(self, chunk: _Chunk) -> Batches:
        return Batches(self._samples, self._targets, chunk.samples, self._scratch)

    def _for_each(self, compute: Callable[[_Chunk], None], chunks: list[_Chunk]) -> None:
        """Compute chunk after chunk, or several at a time in threads."""
        on_cpu = self._torch_device.type == "cpu"
        if self.learner.concurrent and on_cpu and len(chunks) > 1:
            run_in_threads([partial(compute, chunk) for chunk in chunks])
            return
        for chunk in chunks:
            with limit_torch_threads(chunk.samples.numel() * self._sample_elements() // 2):
                compute(chunk)


def _check_memory(
    parameters: int, devices: int, dtype: torch.dtype, torch_device: torch.device
) -> None:
    """Refuse models that cannot all be in memory, before any of them is allocated."""
    if torch_device.type == "cpu":
        refuse_too_large(
            "model",
            f"{parameters:,} parameters on {devices} devices",
            _COPIES * devices * parameters * dtype.itemsize,
            "a smaller model or fewer devices: models and gradients take",
        )


def _check_batch(batch: int, devices: int, data: Data, dtype: torch.dtype) -> None:
    """Refuse a batch whose sample numbers, and samples of one device, cannot be in memory."""
    numbers = devices * batch * _BYTES_PER_DRAW
    samples = batch * data.x[0].numel() * dtype.itemsize
    refuse_too_large(
        "batch", batch, numbers + samples, "a smaller batch: drawing its samples takes"
    )


class _BatchDraws:
    """Draws the numbers of the samples in the batches.

    A draw is by name, so it does not matter when it is made: a few rounds are drawn at once.
    """

    def __init__(self, split: Split, seed: int, batch: int, devices: NDArray[np.int64]) -> None:
        self._split = split
        self._seed = seed
        self._batch = batch
        self._devices = devices
        self._whole: NDArray[np.int64] | None = None  # set if a batch is all of a device's samples
        # By step: the first round that was drawn, and the rounds [rounds, devices, batch].
        self._drawn: dict[int, tuple[int, NDArray[np.int64]]] = {}

    def of(
        self,
        t: int | NDArray[np.int64],
        step: int,
        devices: NDArray[np.int64] | None,
        arrived: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        """Return sample numbers [devices, batch] of some devices, or of all (None)."""
        if not self._batch:
            return self._whole_batches(devices)
        split = self._split
        if not isinstance(t, int):  # every device in a round of its own
            assert devices is not None
            rounds = t[:, None]
            return splits.batch(split, self._seed, rounds, step, self._batch, devices, arrived)
        if devices is not None:
            return splits.batch(split, self._seed, t, step, self._batch, devices, arrived)
        if arrived is not None:
            return splits.batch(split, self._seed, t, step, self._batch, self._devices, arrived)
        first, drawn = self._drawn.get(step, (0, np.empty((0, 0, 0), dtype=np.int64)))
        if not first <= t < first + len(drawn):
            count = _SAMPLES_DRAWN_AT_ONCE // (len(self._devices) * self._batch)
            rounds = t + np.arange(max(1, count))
            first = t
            drawn = splits.batch(
                self._split, self._seed, rounds[:, None, None], step, self._batch, self._devices
            )
            self._drawn[step] = (first, drawn)
        return drawn[t - first]

    def _whole_batches(self, devices: NDArray[np.int64] | None) -> NDArray[np.int64]:
        if devices is not None:
            return splits.whole(self._split, devices)
        if self._whole is None:
            self._whole = splits.whole(self._split, self._devices)
        return self._whole


def test_subset(samples: int, wanted: int) -> Tensor:
    """Return the numbers of the test samples that are used.

    The choice is the same for every seed, so that runs are scored alike.

    Args:
        samples: Number of test samples.
        wanted: How many to use (0: all).
    """
    if not 0 < wanted < samples:
        return torch.arange(samples)
    return torch.from_numpy(np.sort(draws.permutation(samples, 0, "test subset")[:wanted]))
