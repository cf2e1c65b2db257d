"""A part of the devices: which ones a process holds, and how it reaches those that other processes hold."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

from gossamer.network.base import IntArray
from gossamer.network.weights import FloatArray, Weights


class Exchange(Protocol):
    """What moves rows between processes. All of them make the same calls in the same order."""

    def swap(self, send: dict[int, Tensor], receive: dict[int, Tensor]) -> None:
        """Send a tensor to each process in `send`, and fill those in `receive` with what it sends; then all are there."""

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
        others = np.unique(owner[outer])
        needed = {int(k): np.unique(outer[owner[outer] == k]) for k in others}
        wanted = {int(k): np.unique(inner[owner[outer] == k]) for k in others}
        senders = np.sort(np.concatenate([self.devices, *needed.values()]))
        order = np.lexsort((sender, receiver))
        row = np.searchsorted(self.devices, receiver[order])
        indptr = np.zeros(len(self.devices) + 1, dtype=np.int64)
        np.cumsum(np.bincount(row, minlength=len(self.devices)), out=indptr[1:])
        return Near(
            indptr,
            np.searchsorted(senders, sender[order]),
            value[order],
            np.searchsorted(senders, self.devices),
            {k: np.searchsorted(self.devices, devices) for k, devices in wanted.items()},
            {k: np.searchsorted(senders, devices) for k, devices in needed.items()},
        )


class Near(NamedTuple):
    """A round's weights as the rows of a part see them: compressed sparse rows over its own and its neighbours' rows.

    Those rows together are in ascending device number. `own`: where the part's rows are among them; `wanted[k]`: which rows
    of the part process k needs; `needed[k]`: where what comes from process k goes.
    """

    indptr: IntArray
    column: IntArray
    value: FloatArray
    own: IntArray
    wanted: dict[int, IntArray]
    needed: dict[int, IntArray]

    @property
    def senders(self) -> int:
        """How many rows there are to mix."""
        return len(self.own) + sum(map(len, self.needed.values()))

    def rows(self) -> IntArray:
        """What each row to mix is called: its row in the part, or a number beyond those."""
        names = np.full(self.senders, -1)
        names[self.own] = np.arange(len(self.own))
        names[names < 0] = np.arange(len(self.own), self.senders)
        return names

    def dense(self) -> FloatArray:
        """The weights as a matrix [rows of the part, rows to mix]."""
        matrix = np.zeros((len(self.own), self.senders))
        matrix[np.repeat(np.arange(len(self.own)), np.diff(self.indptr)), self.column] = self.value
        return matrix
