"""A shard: some of the devices in one process, and the rows that it exchanges with other shards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple, Protocol

import numpy as np
from torch import Tensor

from gossamer.network.base import FloatArray, IntArray
from gossamer.network.weights import Weights

Reduction = Literal["sum", "max", "min"]


class Exchange(Protocol):
    """Moves rows between shards. All shards make the same calls in the same order."""

    def exchange_rows(
        self, x: Tensor, send: dict[int, IntArray], receive: dict[int, int]
    ) -> Callable[[], dict[int, Tensor]]:
        """Start to send rows of x, and to receive rows of the same type and shape.

        Args:
            x: The rows of this shard.
            send: Which rows of x to send, per shard.
            receive: How many rows to receive, per shard.

        Returns:
            A function that waits for the rows and returns them per shard. Call it before the next
            exchange. The rows are valid until the exchange after the next one, which may overwrite
            them.
        """

    def all_reduce(self, x: Tensor, operation: Reduction) -> Tensor:
        """Return the sum, the largest or the smallest of what all shards pass, element by element.

        All shards receive the same bits. A shard needs memory for two tensors, not one per shard.

        Args:
            x: A tensor that has the same type and shape in all shards.
            operation: What is computed.
        """


@dataclass(frozen=True, eq=False)
class Shard:
    """The devices that one process holds.

    Args:
        owner: The shard of each device.
        number: The number of this shard.
        exchange: The connection to the other shards.
    """

    owner: IntArray
    number: int
    exchange: Exchange

    @cached_property
    def devices(self) -> IntArray:
        """The numbers of the devices in this shard, ascending."""
        return np.flatnonzero(self.owner == self.number)

    def local_weights(self, weights: Weights) -> LocalWeights:
        """Return the rows of a weight matrix that belong to this shard.

        Args:
            weights: The weights of all devices.

        Returns:
            The rows of this shard's devices, and which rows to exchange for them.
        """
        a = weights.a
        b = weights.b
        a_here = self.owner[a] == self.number
        b_here = self.owner[b] == self.number
        receiver = np.concatenate([a[a_here], self.devices, b[b_here]])
        sender = np.concatenate([b[a_here], self.devices, a[b_here]])
        value = np.concatenate(
            [weights.value[a_here], weights.own[self.devices], weights.backward[b_here]]
        )

        # Both ends of a link between two shards need the row of the other end.
        a_only = a_here & ~b_here
        b_only = b_here & ~a_here
        inner = np.concatenate([a[a_only], b[b_only]])
        outer = np.concatenate([b[a_only], a[b_only]])
        send = {}
        halo = {}
        for k in np.unique(self.owner[outer]).tolist():
            with_k = self.owner[outer] == k
            send[k] = np.searchsorted(self.devices, np.unique(inner[with_k]))
            halo[k] = np.unique(outer[with_k])

        order = np.lexsort((sender, receiver))  # ascending by receiver, then by sender
        columns = np.concatenate([self.devices, *halo.values()])
        matrix = CsrMatrix.from_entries(
            np.searchsorted(self.devices, receiver[order]),
            _positions(columns, sender[order]),
            value[order],
            shape=(len(self.devices), len(columns)),
        )
        receive = {k: len(devices) for k, devices in halo.items()}
        return LocalWeights(matrix, send, receive)


class LocalWeights(NamedTuple):
    """The weights of one round for the rows of a shard.

    Attributes:
        matrix: One row per device of the shard. The columns are the rows that are mixed: first
            those of the shard itself, then the halo, which is what each other shard sends. The
            entries of a row ascend by the number of the sender.
        send: Which rows of this shard each other shard needs.
        receive: How many rows each other shard sends.
    """

    matrix: CsrMatrix
    send: dict[int, IntArray]
    receive: dict[int, int]

    def blocks(self) -> list[CsrMatrix]:
        """Return the matrix by the origin of its columns: this shard, then each other shard."""
        own = self.matrix.rows
        bounds = np.cumsum([0, own, *self.receive.values()]).tolist()
        return [self.matrix.select_columns(first, last) for first, last in pairwise(bounds)]


class CsrMatrix(NamedTuple):
    """A sparse matrix in compressed sparse row format.

    Attributes:
        indptr: The entries of row i are those from indptr[i] to indptr[i + 1].
        column: Column of each entry.
        value: Value of each entry.
        columns: Number of columns.
    """

    indptr: IntArray
    column: IntArray
    value: FloatArray
    columns: int

    @classmethod
    def from_entries(
        cls, row: IntArray, column: IntArray, value: FloatArray, shape: tuple[int, int]
    ) -> CsrMatrix:
        """Return a matrix from its entries, which ascend by row."""
        rows, columns = shape
        indptr = np.zeros(rows + 1, dtype=np.int64)
        np.cumsum(np.bincount(row, minlength=rows), out=indptr[1:])
        return cls(indptr, column, value, columns)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    @property
    def row(self) -> IntArray:
        """Row of each entry."""
        return np.repeat(np.arange(self.rows), np.diff(self.indptr))

    def select_columns(self, first: int, last: int) -> CsrMatrix:
        """Return the columns from `first` up to `last`."""
        kept = (self.column >= first) & (self.column < last)
        return CsrMatrix.from_entries(
            self.row[kept],
            self.column[kept] - first,
            self.value[kept],
            shape=(self.rows, last - first),
        )

    def csr(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Return (indptr, column, value)."""
        return self.indptr, self.column, self.value

    def dense(self) -> FloatArray:
        """Return the matrix as an array."""
        matrix = np.zeros((self.rows, self.columns))
        matrix[self.row, self.column] = self.value
        return matrix


def _positions(items: IntArray, wanted: IntArray) -> IntArray:
    """Return where in `items` (distinct, in any order) each wanted number is."""
    order = np.argsort(items, kind="stable")
    return order[np.searchsorted(items, wanted, sorter=order)]
