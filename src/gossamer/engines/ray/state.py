"""The state of the shards: kept in Ray's object store, and written to files by the shards.

Neither passes through the driver, whose memory does not depend on the number of devices.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from gossamer._core.files import os_errors
from gossamer._core.tensor_files import Layout, Shape, digest_of_rows, write_rows
from gossamer.engines.plan import Plan, Snapshot
from gossamer.engines.simulate import CLOCK, STEPS
from gossamer.network.base import IntArray

if TYPE_CHECKING:
    from gossamer.engines.ray.actors import ShardActors

BLOCK = 16 << 20
"""Bytes that the driver fetches at a time from a shard that cannot open a file itself."""

What = Literal["state", "models"]


@dataclass(frozen=True)
class KeptState:
    """A checkpoint in Ray's object store.

    Attributes:
        snapshot: Round and traffic; no tensors.
        parts: A reference per shard to its tensors, as `to_arrays` has them.
    """

    snapshot: Snapshot
    parts: list[Any]


def shared_tensors(plan: Plan) -> set[str]:
    """Return the names of the state's tensors that are the same in all shards.

    Args:
        plan: What is run.
    """
    dtype = getattr(torch, plan.dtype)
    start = plan.task.learner.init(plan.seed).to(dtype).expand(2, -1)
    state = plan.algorithm.first_state(start)
    return {CLOCK, STEPS, *(name for name, x in state.items() if len(x) == 1)}


def to_arrays(tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Return tensors as arrays, which Ray stores without a copy in between.

    Args:
        tensors: The tensors by name, on the CPU. Those of a type that NumPy lacks stay as they are.
    """
    found: dict[str, Any] = {}
    for name, x in tensors.items():
        found[name] = x if x.dtype == torch.bfloat16 else x.numpy()
    return found


def to_tensors(arrays: dict[str, Any]) -> dict[str, Tensor]:
    """Return what `to_arrays` was given. The tensors are copies that may be written to.

    Args:
        arrays: The arrays by name.
    """
    found = {}
    for name, x in arrays.items():
        found[name] = x if isinstance(x, Tensor) else torch.from_numpy(x.copy())
    return found


class OwnRows:
    """The tensors of a shard that are being written to a file.

    Args:
        tensors: The tensors by name.
        devices: Numbers of the devices that the shard holds.
        number: Number of the shard. The first one writes what all of them share.
    """

    def __init__(self, tensors: dict[str, Tensor], devices: IntArray, number: int) -> None:
        self._tensors = tensors
        self._devices = devices
        self._number = number

    def shapes(self) -> dict[str, Shape]:
        """Return types and shapes of the tensors of this shard."""
        return {name: Shape(x.dtype, tuple(x.shape)) for name, x in self._tensors.items()}

    def rows(self, name: str, first: int, last: int) -> Any:
        """Return some rows of a tensor, by their positions in the shard."""
        return to_arrays({name: self._tensors[name][first:last].contiguous()})[name]

    def write(self, path: Path, layout: Layout, shared: set[str]) -> int | None:
        """Write the rows into a file.

        Args:
            path: The file.
            layout: Where the tensors begin.
            shared: Names of the tensors that are the same in all shards.

        Returns:
            The sum of the digests of the rows; None if this machine does not have the file.

        Raises:
            DataError: If they cannot be written.
        """
        if not _is_same_file(path, layout):
            return None
        total = 0
        with os_errors("write", path), path.open("r+b") as file:
            for name, x in self._tensors.items():
                rows = self._devices
                if name in shared:
                    if self._number > 0:
                        continue
                    rows = np.arange(len(x))
                write_rows(file.fileno(), layout.begin[name], rows, x)
                total += digest_of_rows(name, rows, x)
            os.fsync(file.fileno())
        return total


def _is_same_file(path: Path, layout: Layout) -> bool:
    """True if a file is the one that the driver has begun: its name is drawn at random."""
    try:
        with path.open("r+b") as file:
            return file.read(len(layout.header)) == layout.header
    except OSError:
        return False


class ShardParts:
    """`gossamer.engines.plan.Parts` of the shards.

    Args:
        actors: The shards.
        owner: The shard of each device.
        what: What is written.
        shared: Names of the tensors that are the same in all shards.
        repeated: Calls a function, and again after shards that were lost have been replaced.
    """

    def __init__(
        self,
        actors: ShardActors,
        owner: IntArray,
        what: What,
        shared: set[str],
        repeated: Callable[..., Any],
    ) -> None:
        self._actors = actors
        self._owner = owner
        self._what = what
        self._shared = shared
        self._repeated = repeated
        self.snapshot: Snapshot
        self.shapes: dict[str, Shape] = {}
        repeated(self._begin)

    def write(self, path: Path, layout: Layout) -> int:
        total: int = self._repeated(self._write, path, layout)
        return total

    def _begin(self) -> None:
        found = self._actors.call("begin_writing", [(self._what,)] * self._actors.count)
        self.snapshot, shapes = found[0]
        self.shapes = {}
        for name, part in shapes.items():
            shape = part.shape
            if name not in self._shared:
                shape = (len(self._owner), *shape[1:])
            self.shapes[name] = Shape(part.dtype, shape)

    def _write(self, path: Path, layout: Layout) -> int:
        self._begin()  # the shards may have been replaced since
        arguments = [(path, layout, self._shared)] * self._actors.count
        total = 0
        for number, digest in enumerate(self._actors.call_checked("write_rows", arguments)):
            if digest is None:
                digest = self._fetch(number, path, layout)
            total += digest
        self._actors.call("end_writing")
        return total

    def _fetch(self, number: int, path: Path, layout: Layout) -> int:
        """Write the rows of a shard whose machine does not have the file, some at a time."""
        devices = np.flatnonzero(self._owner == number)
        total = 0
        with os_errors("write", path), path.open("r+b") as file:
            for name, shape in self.shapes.items():
                rows = devices
                if name in self._shared:
                    if number > 0:
                        continue
                    rows = np.arange(shape.shape[0])
                row_bytes = shape.bytes // max(1, shape.shape[0])
                step = max(1, BLOCK // max(1, row_bytes))
                for first in range(0, len(rows), step):
                    last = min(first + step, len(rows))
                    part = self._actors.call_one(number, "rows_of", name, first, last)
                    x = to_tensors({name: part})[name]
                    write_rows(file.fileno(), layout.begin[name], rows[first:last], x)
                    total += digest_of_rows(name, rows[first:last], x)
        return total
