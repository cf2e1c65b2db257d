"""The mix of one round for a stack of devices: all of them, or those of a shard."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from gossamer import backend
from gossamer.algorithms.base import Neighbours
from gossamer.engines.buffers import BufferPool
from gossamer.engines.shard import CsrMatrix, LocalWeights, Shard
from gossamer.mirror import (
    MirrorMap,
    PowerMap,
    block_columns,
    root,
    root_,
    signed_power,
    signed_power_,
)
from gossamer.network.weights import FloatArray, Weights

# A sparse product is faster below a density of 1/6 (float32) or 1/16 (float64), as measured. In
# float32 sums of rows take up to half the time of torch's sparse product, and no memory besides
# their result; in float64 they are slower.
_SPARSE_BELOW = {torch.float32: 6, torch.float64: 16}

with warnings.catch_warnings():  # torch warns once per process that its CSR tensors are in beta
    warnings.simplefilter("ignore")
    torch.eye(2).to_sparse_csr()


@dataclass
class Traffic:
    """The messages of all devices. A message is one vector from one device to one neighbour.

    Args:
        messages: Number of messages of the run so far.
        bytes: Their size.
        link_bytes: Bytes per link and direction in this round, for the clocks: one number for all
            links, or an array [2, links].
        reduced_bytes: Bytes per device in all-reduces of this round.
        star: True if these went through a server, not around a ring.
    """

    messages: int = 0
    bytes: int = 0
    link_bytes: float | FloatArray = 0.0
    reduced_bytes: int = 0
    star: bool = False

    def start_round(self) -> None:
        """Reset what is counted per round."""
        self.link_bytes = 0.0
        self.reduced_bytes = 0


class _SparseRows(NamedTuple):
    """A sparse matrix as `embedding_bag` and the kernels take it; see `CsrMatrix`."""

    indptr: Tensor
    column: Tensor
    value: Tensor


@dataclass(eq=False)
class StackedMix:
    """`algorithms.Mix` for a stack of devices. Sums are in ascending order of the senders' numbers.

    Args:
        weights: The weights of all devices.
        devices: Numbers of the devices in the stack.
        itemsize: Bytes per element of a message: that of the models.
        traffic: Counts the messages.
        last_input: Input of the last mix, which shows where a value that is not finite came from.
        previous_weights: Returns the weights of the previous round. None: every device knows
            everything that its neighbours sent before.
        message_bytes: Bytes of a message, and of one to a new neighbour, if it is not the vector.
        shard: The shard that the stack is. None: the stack has all devices.
        local: The weights of that shard.
        buffers: Memory for results.
    """

    weights: Weights
    devices: Tensor
    itemsize: int
    traffic: Traffic
    last_input: Tensor | None = None
    previous_weights: Callable[[], Weights] | None = None
    message_bytes: tuple[int, int] | None = None
    shard: Shard | None = None
    local: LocalWeights | None = None
    buffers: BufferPool = field(default_factory=BufferPool)
    _matrices: dict[tuple[torch.dtype, int], Tensor | _SparseRows] = field(default_factory=dict)

    # -- the interface of `Mix` -------------------------------------------------------------------

    @property
    def active(self) -> Tensor | None:
        active = self.weights.active
        if active is None:
            return None
        if self.shard is not None:
            active = active[self.shard.devices]
        return torch.from_numpy(active).to(self.devices.device)

    def __call__(self, x: Tensor, accumulate: torch.dtype | None = None) -> Tensor:
        self.count(x)
        if accumulate in (None, x.dtype):
            return self._linear(x)
        result = torch.empty_like(x)
        for columns, out, double, mixed in _column_blocks(self._all_rows(x), result):
            out.copy_(self._dual_sum(columns, 1, double, mixed))
        return result

    def mean(self, w: Tensor, mirror: MirrorMap) -> Tensor:
        self.count(w)
        if mirror.power is None:
            return mirror.to_primal(self._linear(mirror.to_dual(w)), w.dtype)
        if mirror.power == 1:
            return self._linear(w)
        return self._power_mean(w, mirror.power)

    def neighbours(self, x: Tensor) -> Neighbours:
        self.count(x)
        receiver, sender, weight = self._entries()
        rows = self._all_rows(x)
        stacked = x if len(rows) == 1 else torch.cat(rows)
        return Neighbours(receiver, sender, weight.to(x.dtype), stacked[sender])

    def with_message_size(self, message: int, first: int) -> StackedMix:
        return replace(self, message_bytes=(message, first))

    def all_reduce(self, x: Tensor, star: bool = False) -> Tensor | None:
        self.last_input = x
        count = self._active_devices()
        if count == 0:
            return None
        self._count_reduction(count, x[0].numel() * self.itemsize, star)
        active = x if self.active is None else x[self.active]
        if self.shard is None:
            return active.mean(0, keepdim=True)
        sums = self.shard.exchange.all_gather(active.sum(0, keepdim=True))
        return torch.stack(sums).sum(0) / count

    # -- traffic ----------------------------------------------------------------------------------

    def count(self, x: Tensor) -> None:
        """Count the messages of one mix of x."""
        self.last_input = x
        self.traffic.messages += self.weights.messages
        if self.message_bytes is None:
            size = x[0].numel() * self.itemsize
            self.traffic.bytes += self.weights.messages * size
            self.traffic.link_bytes = self.traffic.link_bytes + size
        else:
            sizes = self._message_sizes(*self.message_bytes)
            self.traffic.bytes += int(sizes.sum())
            self.traffic.link_bytes = self.traffic.link_bytes + sizes

    def _message_sizes(self, known: int, first: int) -> FloatArray:
        """Return the bytes per link and direction [2, links] (0: nothing is sent that way)."""
        sent = np.stack([self.weights.value, self.weights.backward]) != 0
        new = np.zeros_like(sent)
        if self.previous_weights is not None:
            new = self.weights.new_since(self.previous_weights())
        return sent * np.where(new, float(first), float(known))

    def _count_reduction(self, count: int, size: int, star: bool) -> None:
        """Count the messages of an all-reduce of `size` bytes among `count` devices."""
        if star:  # every device sends the vector to the server and receives one
            self.traffic.messages += 2 * count
            self.traffic.bytes += 2 * count * size
        else:  # a ring: every device sends 2·(count − 1) messages of 1/count of the vector
            self.traffic.messages += 2 * (count - 1) * count
            self.traffic.bytes += 2 * (count - 1) * size
        self.traffic.reduced_bytes += size
        self.traffic.star = star

    def _active_devices(self) -> int:
        """Return how many devices of the network take part in the round."""
        if self.weights.active is None:
            return self.weights.devices
        return int(self.weights.active.sum())

    # -- rows of other shards ---------------------------------------------------------------------

    def _all_rows(self, x: Tensor) -> list[Tensor]:
        """Return the rows that are mixed: those of the stack, then those of each other shard."""
        return [x, *self._exchange(x)()]

    def _exchange(self, x: Tensor) -> Callable[[], list[Tensor]]:
        """Start to exchange rows. Return a function that waits for those of the other shards."""
        if self.shard is None or self.local is None or not self.local.receive:
            return list
        wait = self.shard.exchange.exchange_rows(x, self.local.send, self.local.receive)
        senders = list(self.local.receive)

        def halo() -> list[Tensor]:
            received = wait()
            return [received[k].to(x.device) for k in senders]

        return halo

    # -- the linear mix ---------------------------------------------------------------------------

    def _linear(self, x: Tensor) -> Tensor:
        """Return Σ_j a_ij·x_j. Rows of other shards arrive while those of the stack are mixed."""
        halo = self._exchange(x)
        result = self._product(x.reshape(len(x), -1))
        for block, rows in enumerate(halo(), 1):
            result = self._product(rows.reshape(len(rows), -1), block, out=result, add=True)
        return result.view_as(x)

    def _product(
        self, x: Tensor, block: int = 0, out: Tensor | None = None, add: bool = False
    ) -> Tensor:
        """Multiply a block of the weights by the rows that belong to it.

        Args:
            x: The rows: of the stack itself (block 0) or of another shard.
            block: Number of the block.
            out: Memory for the result.
            add: Add the product to `out`.
        """
        matrix = self._matrix(x.dtype, block)
        if isinstance(matrix, Tensor):
            if add and out is not None:
                return out.addmm_(matrix, x)
            return torch.mm(matrix, x, out=out)
        if backend.serve(1, x):
            result = self.buffers.empty_like(x) if out is None else out
            return backend.weighted_sums(*matrix, x, result, add)
        sums = embedding_bag(
            matrix.column,
            x,
            matrix.indptr,
            mode="sum",
            per_sample_weights=matrix.value,
            include_last_offset=True,
        )
        if add and out is not None:
            return out.add_(sums)
        return sums

    def _matrix(self, dtype: torch.dtype, block: int) -> Tensor | _SparseRows:
        """Return a block of the weights in the format whose product is fastest."""
        if (dtype, block) not in self._matrices:
            self._matrices[dtype, block] = self._build_matrix(dtype, block)
        return self._matrices[dtype, block]

    def _build_matrix(self, dtype: torch.dtype, block: int) -> Tensor | _SparseRows:
        device = self.devices.device
        rows = len(self.devices)
        if self.local is None:
            weights: Weights | CsrMatrix = self.weights
            columns = self.weights.devices
            entries = columns + 2 * len(self.weights.value)
        else:
            weights = self._blocks[block]
            columns = weights.columns
            entries = len(weights.value)
        if entries * _SPARSE_BELOW[dtype] > rows * columns:
            return torch.from_numpy(weights.dense()).to(device, dtype)
        csr = [torch.from_numpy(array).to(device) for array in weights.csr()]
        indptr, column, value = csr
        value = value.to(dtype)
        if dtype == torch.float32:
            return _SparseRows(indptr.long(), column.long(), value)
        return torch.sparse_csr_tensor(
            indptr.int(), column.int(), value, (rows, columns), check_invariants=False
        )

    @cached_property
    def _blocks(self) -> list[CsrMatrix]:
        assert self.local is not None
        return self.local.blocks()

    # -- the power mean ---------------------------------------------------------------------------

    def _power_mean(self, w: Tensor, p: float) -> Tensor:
        rows = self._all_rows(w)
        if not backend.serve(p, *rows):
            return self._plain_power_mean(rows, PowerMap(p))
        weights = self.weights if self.local is None else self.local.matrix
        return backend.power_mean(rows, *weights.csr(), p, self.buffers.empty_like(w))

    def _plain_power_mean(self, rows: list[Tensor], mirror: PowerMap) -> Tensor:
        """Return the power mean by torch operations, block of columns by block of columns."""
        p = mirror.p
        result = torch.empty_like(rows[0])
        single = result.dtype == torch.float32
        for columns, out, double, mixed in _column_blocks(rows, result):
            z = self._dual_sum(columns, p, double, mixed)
            out.copy_(root_(z, p, scratch=double) if single else root(z, p))
            if mirror.always_fits or _in_range(out, mirror.smallest):
                continue
            # Columns whose dual is outside float64; an exact zero is not.
            all_rows = torch.cat(columns)
            beyond = ~mirror.fits(all_rows).all(0)
            if beyond.any():
                out[:, beyond] = self._scaled_power_mean(all_rows[:, beyond], p)
        return result

    def _dual_sum(self, columns: list[Tensor], p: float, double: Tensor, mixed: Tensor) -> Tensor:
        """Return Σ_j a_ij·w_j^[p] in float64.

        Args:
            columns: Columns of the rows: of the stack, then of each other shard.
            p: The power.
            double: Scratch buffer for the powers of the stack's rows.
            mixed: Memory for the result.
        """
        own, *halo = columns
        z = self._product(signed_power_(double.copy_(own), p, scratch=mixed), out=mixed)
        for block, rows in enumerate(halo, 1):
            z = self._product(signed_power_(rows.double(), p), block, out=z, add=True)
        return z

    def _scaled_power_mean(self, w: Tensor, p: float) -> Tensor:
        """Return the power mean for any magnitudes.

        Every neighbourhood is divided by its largest |w_j| first, element by element.
        """
        row, column, value = self._entries()
        x = w.double()[column]
        scale = torch.zeros((len(self.devices), w.shape[1]), dtype=torch.float64, device=w.device)
        scale.scatter_reduce_(0, row[:, None].expand_as(x), x.abs(), "amax")
        scale = torch.where(scale == 0, 1.0, scale)
        terms = signed_power(x / scale[row], p) * value.double()[:, None]
        z = torch.zeros_like(scale).index_add_(0, row, terms)
        return (root(z, p, torch.float64) * scale).to(w.dtype)

    def _entries(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return row, column and value of the weights, ascending by row, then by sender."""
        if self.local is None:
            matrix = CsrMatrix(*self.weights.csr(), self.weights.devices)
        else:
            matrix = self.local.matrix
        device = self.devices.device
        return (
            torch.from_numpy(matrix.row).to(device),
            torch.from_numpy(matrix.column).to(device),
            torch.from_numpy(matrix.value).to(device),
        )


def _in_range(power_mean: Tensor, smallest: float) -> bool:
    """True if no element shows an overflow or underflow of the dual."""
    size = power_mean.abs()
    # False for NaN, which is what root_ returns for an overflow.
    above = size.amin().item() > smallest
    return above and (power_mean.dtype == torch.float32 or size.amax().item() != math.inf)


def _column_blocks(
    rows: list[Tensor], result: Tensor
) -> Iterator[tuple[list[Tensor], Tensor, Tensor, Tensor]]:
    """Split rows and result into blocks of columns whose float64 copies stay in the cache.

    Yields:
        The columns of each tensor in `rows`, those of the result, and two float64 scratch buffers
        of that shape, which all blocks share.
    """
    width = min(block_columns(len(result)), result.shape[1])
    shape = (len(result), width)
    double = torch.empty(shape, dtype=torch.float64, device=result.device)
    mixed = torch.empty(shape, dtype=torch.float64, device=result.device)
    blocks = [x.split(width, 1) for x in (*rows, result)]
    for *columns, out in zip(*blocks, strict=True):
        if out.shape[1] != width:  # the last block is narrower
            double = double.view(-1)[: out.numel()].view(out.shape)
            mixed = mixed.view(-1)[: out.numel()].view(out.shape)
        yield columns, out, double, mixed
