"""A task: data, how it is split among the devices, and the model that is learned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from gossamer._core.arguments import checked
from gossamer.errors import InputError
from gossamer.tasks.data import Data
from gossamer.tasks.learner import Learner
from gossamer.tasks.splits import Split
from gossamer.tasks.worker import Worker

MAX_BATCH = 1 << 40
"""Largest batch; far smaller ones do not fit the memory of any machine."""


@runtime_checkable
class Model(Protocol):
    """The description of a model."""

    def learner(self, data: Data) -> Learner:
        """Return the learner for data of some shape."""


@checked
@dataclass(frozen=True)
class Task:
    """What is learned: data, a split and a model.

    Args:
        data: Training and test samples.
        split: Which device holds which training samples.
        model: The model.
        batch: Samples per step, drawn with replacement from the device's own. 0: all of them, in
            every step.

    Raises:
        InputError: If the parts do not fit together.

    Example:
        >>> from gossamer.tasks import Digits, Iid, Softmax
        >>> data = Digits().load()
        >>> split = Iid().make(data.y.numpy(), devices=10, seed=0)
        >>> Task(data, split, Softmax(), batch=32).learner.parameters
        650
    """

    data: Data
    split: Split
    model: Model
    batch: int = 32

    def __post_init__(self) -> None:
        if not 0 <= self.batch <= MAX_BATCH:
            limit = f"at most {MAX_BATCH:,}" if self.batch > 0 else "at least 1"
            accepted = f"a whole number of {limit}, or 0 for all samples of a device"
            raise InputError("batch", self.batch, accepted)
        sizes = self.split.sizes[self.split.sizes > 0]
        if self.batch == 0 and len(np.unique(sizes)) > 1:
            accepted = (
                "a whole number of at least 1, since devices hold different numbers of samples"
            )
            raise InputError("batch", 0, accepted)
        # Nothing of the following is checked again when batches are read.
        self._check_split()
        self._check_targets()

    def _check_split(self) -> None:
        last = self.data.samples - 1
        for sample in (int(self.split.index.min()), int(self.split.index.max())):
            if not 0 <= sample <= last:
                raise InputError("split", f"sample {sample}", f"sample numbers from 0 to {last}")

    def _check_targets(self) -> None:
        y = self.data.y
        if len(y) != self.data.samples:
            accepted = f"as many as x has samples, {self.data.samples}"
            raise InputError("y", f"{len(y)} targets", accepted)
        if self.data.classes is None:
            return
        wrong = y[(y < 0) | (y >= self.data.classes)]
        if wrong.numel():
            raise InputError("y", int(wrong[0]), f"labels from 0 to {self.data.classes - 1}")

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.split.devices

    @cached_property
    def learner(self) -> Learner:
        """The model, bound to the shape of the data."""
        return self.model.learner(self.data)

    def only(self, devices: NDArray[np.int64]) -> Task:
        """Return the task with the training samples of some devices alone.

        For a process that holds no other devices.

        Args:
            devices: Numbers of the devices, ascending.
        """
        is_here = np.zeros(self.devices, dtype=bool)
        is_here[devices] = True
        held = self.split.index[np.repeat(is_here, self.split.sizes)]
        samples, index = np.unique(held, return_inverse=True)
        sizes = np.zeros(self.devices, dtype=np.int64)
        sizes[devices] = self.split.sizes[devices]
        chosen = torch.from_numpy(samples)
        data = replace(self.data, x=self.data.x[chosen], y=self.data.y[chosen], owner=None)
        split = Split(index.astype(np.int64), np.concatenate([[0], np.cumsum(sizes)]))
        return replace(self, data=data, split=split)

    def worker(
        self,
        devices: NDArray[np.int64],
        seed: int,
        dtype: torch.dtype,
        torch_device: torch.device,
        test: int = 0,
    ) -> Worker:
        """Return a worker that trains and scores some of the devices.

        Args:
            devices: Numbers of the devices.
            seed: The seed of the run.
            dtype: Type of models and samples.
            torch_device: The torch device to compute on.
            test: Number of test samples to score on (0: all).
        """
        return Worker(
            self.data,
            self.split,
            self.learner,
            self.batch,
            devices,
            seed,
            dtype,
            torch_device,
            test,
        )
