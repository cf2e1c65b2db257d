"""A shard: some of the devices in one process, and the rows that it exchanges with other shards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer._core.sorting import distinct, stable_order
from gossamer.network.base import BoolArray, FloatArray, IntArray, Links
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
            receive: How many rows to receive, per shard: of the same shards. A shard may send or
                receive no rows.

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
        own_links: Compute the links of these devices only, where network and weights allow it. That
            takes some messages per round, which few devices are not worth.
    """

    owner: IntArray
    number: int
    exchange: Exchange
    own_links: bool = True

    @cached_property
    def devices(self) -> IntArray:
        """The numbers of the devices in this shard, ascending."""
        return np.flatnonzero(self.owner == self.number)

    @cached_property
    def count(self) -> int:
        """Number of shards."""
        return int(self.owner.max(initial=0)) + 1

    # -- what all shards compute together: `gossamer.network.parts.Part` --------------------------

    def sum(self, x: IntArray) -> IntArray:
        """Return the sum of what all shards pass, element by element."""
        total: IntArray = self.exchange.all_reduce(torch.from_numpy(x), "sum").numpy()
        return total

    def sum_rows(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return one row per device of the network from one per device of each shard."""
        rows = np.zeros((len(self.owner), *x.shape[1:]), dtype=x.dtype)
        rows[self.devices] = x
        return self.exchange.all_reduce(torch.from_numpy(rows), "sum").numpy()

    def send(self, values: IntArray, to: IntArray) -> IntArray:
        """Send each value to a shard; see `gossamer.network.parts.Part`."""
        # Number of values, by sender and receiver.
        sent = np.zeros((self.count, self.count), dtype=np.int64)
        sent[self.number] = np.bincount(to, minlength=self.count)
        ends = np.cumsum(sent[self.number])
        sent = self.sum(sent)
        values = values[stable_order(to, self.count)]
        send = {}
        receive = {}
        for k in range(self.count):
            if k != self.number and sent[self.number, k] + sent[k, self.number]:
                send[k] = np.arange(ends[k] - sent[self.number, k], ends[k])
                receive[k] = int(sent[k, self.number])
        received = self.exchange.exchange_rows(torch.from_numpy(values), send, receive)()
        parts = {k: x.numpy() for k, x in received.items()}
        own = ends[self.number]
        parts[self.number] = values[own - sent[self.number, self.number] : own]
        return np.concatenate([parts[k] for k in sorted(parts)])

    # -- weights ----------------------------------------------------------------------------------

    def boundary(self, a: IntArray, b: IntArray) -> Boundary:
        """Return which rows travel when all devices mix once.

        Args:
            a: First device of each link; other links than those of this shard are ignored.
            b: Second device.
        """
        a_only = (self.owner[a] == self.number) & (self.owner[b] != self.number)
        b_only = (self.owner[b] == self.number) & (self.owner[a] != self.number)
        # Both ends of a link between two shards need the row of the other end.
        inner = np.concatenate([a[a_only], b[b_only]])
        outer = np.concatenate([b[a_only], a[b_only]])
        first = self.owner[outer] * len(self.owner)  # ascending by shard, then by device
        send = {}
        for k, devices in self._by_shard(first + inner).items():
            send[k] = np.searchsorted(self.devices, devices)
        return Boundary(send, self._by_shard(first + outer))

    def _by_shard(self, codes: IntArray) -> dict[int, IntArray]:
        """Return the different devices per shard, from shard · devices + device."""
        shard, device = np.divmod(distinct(codes), len(self.owner))
        shards, begin = np.unique(shard, return_index=True)
        ends = np.append(begin, len(device))
        found = {}
        for position, k in enumerate(shards.tolist()):
            found[k] = device[ends[position] : ends[position + 1]]
        return found

    def with_degrees(self, links: Links, boundary: Boundary) -> Links:
        """Return the same links, with the degrees of the neighbours in other shards.

        Args:
            links: The links of this shard's devices.
            boundary: Their ends in other shards.
        """
        degrees = links.degrees
        if boundary.halo:
            own = torch.from_numpy(degrees[self.devices])
            received = self.exchange.exchange_rows(own, boundary.send, boundary.receive)()
            for k, x in received.items():
                degrees[boundary.halo[k]] = x.numpy()
        return replace(links, known_degrees=degrees)

    def local_weights(self, weights: Weights, boundary: Boundary | None = None) -> LocalWeights:
        """Return the rows of a weight matrix that belong to this shard.

        Args:
            weights: The weights of all devices, or of all links of this shard.
            boundary: The rows that travel over these links. None: they are found.

        Returns:
            The rows of this shard's devices, and which rows to exchange for them.
        """
        a = weights.a
        b = weights.b
        if boundary is None:
            boundary = self.boundary(a, b)
        a_here = self.owner[a] == self.number
        b_here = self.owner[b] == self.number
        receiver = np.concatenate([a[a_here], self.devices, b[b_here]])
        sender = np.concatenate([b[a_here], self.devices, a[b_here]])
        value = np.concatenate(
            [weights.value[a_here], weights.own[self.devices], weights.backward[b_here]]
        )

        order = np.lexsort((sender, receiver))  # ascending by receiver, then by sender
        columns = np.concatenate([self.devices, *boundary.halo.values()])
        matrix = CsrMatrix.from_entries(
            np.searchsorted(self.devices, receiver[order]),
            _positions(columns, sender[order]),
            value[order],
            shape=(len(self.devices), len(columns)),
        )
        arriving = np.stack([a_here, b_here])
        if weights.back is not None:
            arriving &= np.stack([weights.value, weights.back]) != 0
        return LocalWeights(matrix, boundary.send, boundary.receive, arriving)


class Boundary(NamedTuple):
    """The links of a shard to other shards.

    Attributes:
        send: Which rows of this shard each other shard needs.
        halo: Numbers of the devices whose rows each other shard sends, ascending.
    """

    send: dict[int, IntArray]
    halo: dict[int, IntArray]

    @property
    def receive(self) -> dict[int, int]:
        """How many rows each other shard sends."""
        return {k: len(devices) for k, devices in self.halo.items()}


class LocalWeights(NamedTuple):
    """The weights of one round for the rows of a shard.

    Attributes:
        matrix: One row per device of the shard. The columns are the rows that are mixed: first
            those of the shard itself, then the halo, which is what each other shard sends. The
            entries of a row ascend by the number of the sender.
        send: Which rows of this shard each other shard needs.
        receive: How many rows each other shard sends.
        arriving: Mask [2, links] of the messages that devices of the shard receive: those to the
            first ends of the links of the weights, and to the second ends.
    """

    matrix: CsrMatrix
    send: dict[int, IntArray]
    receive: dict[int, int]
    arriving: BoolArray

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
