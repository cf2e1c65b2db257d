"""A part of the devices: which ones a process holds, and how it reaches those that other processes hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

from gossamer.network.base import IntArray
from gossamer.network.weights import FloatArray, Weights


class Exchange(Protocol):
    """What moves rows between processes. All of them make the same calls in the same order."""

    def swap(
        self, x: Tensor, wanted: dict[int, IntArray], needed: dict[int, int]
    ) -> Callable[[], dict[int, Tensor]]:
        """Send some rows of x to each process in `wanted`. The call that this gives waits for as many as `needed` says of each.

        It is to be called before the next swap, and what it gives to be read before the next but one, which may overwrite it.
        """

    def gather(self, x: Tensor) -> list[Tensor]:
        """Everyone's x, all of one shape, in the order of the processes."""


@dataclass(frozen=True, eq=False)
class Part:
    """The devices of process `number`, of those that hold them all: owner[i] is the number of the process that has device i."""

    owner: IntArray
    number: int
    exchange: Exchange

    @cached_property
    def devices(self) -> IntArray:
        """The numbers of the devices that are here, ascending."""
        return np.flatnonzero(self.owner == self.number)

    def near(self, weights: Weights) -> Near:
        """What of a round's weights concerns this part."""
        a, b, owner = weights.a, weights.b, self.owner
        back = weights.value if weights.back is None else weights.back
        a_here, b_here = owner[a] == self.number, owner[b] == self.number
        receiver = np.concatenate([a[a_here], self.devices, b[b_here]])
        sender = np.concatenate([b[a_here], self.devices, a[b_here]])
        value = np.concatenate([weights.value[a_here], weights.own[self.devices], back[b_here]])
        # a link between two parts: both ends need the other's row
        inner = np.concatenate([a[a_here & ~b_here], b[b_here & ~a_here]])
        outer = np.concatenate([b[a_here & ~b_here], a[b_here & ~a_here]])
        others = [int(k) for k in np.unique(owner[outer])]
        needed = {k: np.unique(outer[owner[outer] == k]) for k in others}
        wanted = {
            k: np.searchsorted(self.devices, np.unique(inner[owner[outer] == k])) for k in others
        }
        rows = np.concatenate(
            [self.devices, *needed.values()]
        )  # own ones first, then process by process
        order = np.lexsort((sender, receiver))
        by_number = np.argsort(rows, kind="stable")
        column = by_number[np.searchsorted(rows, sender[order], sorter=by_number)]
        row = np.searchsorted(self.devices, receiver[order])
        return Near(
            len(self.devices),
            row,
            column,
            value[order],
            wanted,
            {k: len(devices) for k, devices in needed.items()},
        )


class Near(NamedTuple):
    """A round's weights as the rows of a part see them, entry by entry: ascending by row, then by the sender's number.

    A column is a row to mix: first the part's own, then those of each other process. `wanted[k]`: which rows of the part
    process k needs; `needed[k]`: how many come from it.
    """

    rows: int
    row: IntArray
    column: IntArray
    value: FloatArray
    wanted: dict[int, IntArray]
    needed: dict[int, int]

    def blocks(self) -> list[Block]:
        """The weights split by where the rows come from: the part's own, then each other process's."""
        ends = np.cumsum([0, self.rows, *self.needed.values()])
        found = []
        for first, last in pairwise(ends.tolist()):
            here = (self.column >= first) & (self.column < last)
            found.append(
                Block(
                    self.rows,
                    last - first,
                    self.row[here],
                    self.column[here] - first,
                    self.value[here],
                )
            )
        return found


class Block(NamedTuple):
    """A sparse matrix of weights [rows, columns], its entries ascending by row."""

    rows: int
    columns: int
    row: IntArray
    column: IntArray
    value: FloatArray

    def csr(self) -> tuple[IntArray, IntArray, FloatArray]:
        indptr = np.zeros(self.rows + 1, dtype=np.int64)
        np.cumsum(np.bincount(self.row, minlength=self.rows), out=indptr[1:])
        return indptr, self.column, self.value

    def dense(self) -> FloatArray:
        matrix = np.zeros((self.rows, self.columns))
        matrix[self.row, self.column] = self.value
        return matrix
