"""One round's mixing for a stack of all devices, or of a part of them: dense or sparse by what is faster."""

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

from gossamer import backend as kernels
from gossamer.algorithms.base import Neighbours
from gossamer.engines.memory import Spare
from gossamer.engines.part import Block, Near, Part
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

with warnings.catch_warnings():  # torch says once a process that its CSR tensors are in beta
    warnings.simplefilter("ignore")
    torch.eye(2).to_sparse_csr()


def _in_float64(
    rows: list[Tensor], result: Tensor
) -> Iterator[tuple[list[Tensor], Tensor, Tensor, Tensor]]:
    """Some columns of rows and result at a time, with room for two float64 copies of the result that stay in the cache."""
    width = min(block_columns(len(result)), result.shape[1])
    double, mixed = (
        torch.empty(len(result), width, dtype=torch.float64, device=result.device) for _ in range(2)
    )
    for *columns, out in zip(
        *(x.split(width, 1) for x in rows), result.split(width, 1), strict=True
    ):
        if out.shape[1] != width:
            double, mixed = (
                room.view(-1)[: out.numel()].view(out.shape) for room in (double, mixed)
            )
        yield columns, out, double, mixed


class _Sums(NamedTuple):
    """Weights row by row: those of row i are value[first[i] : first[i + 1]], of the rows that `column` names."""

    first: Tensor
    column: Tensor
    value: Tensor


@dataclass
class Traffic:
    """What was sent so far: a message is one vector from one device to one neighbour."""

    messages: int = 0
    bytes: int = 0
    # In this round alone, for a clock: bytes that went over each link (each way that is used), and into averages of all.
    over_link: float | FloatArray = 0.0
    averaged: int = 0
    star: bool = False  # the averages were a server's, not a ring's


@dataclass(eq=False)
class StackedMix:
    """`algorithms.Mix` over a stack of all devices, or of a `part` of them. Rows are summed in ascending device number."""

    weights: Weights  # of all devices
    devices: Tensor
    itemsize: int  # bytes of a number on the wire: that of the models
    traffic: Traffic
    mixed: Tensor | None = (
        None  # what went into the last mix: shows where a value that is not finite came from
    )
    before: Callable[[], Weights] | None = (
        None  # the round before (None: all know all that they were sent until now)
    )
    message: tuple[int, int] | None = (
        None  # bytes of a message, and of one to a new neighbour, where it is not the vector
    )
    part: Part | None = None
    near: Near | None = None  # part.near(weights)
    spare: Spare = field(default_factory=Spare)
    _matrices: dict[tuple[torch.dtype, int], Tensor | _Sums] = field(default_factory=dict)

    @property
    def active(self) -> Tensor | None:
        active = self.weights.active
        if active is None:
            return None
        return torch.from_numpy(active if self.part is None else active[self.part.devices]).to(
            self.devices.device
        )

    def __call__(self, x: Tensor, accumulate: torch.dtype | None = None) -> Tensor:
        self._count(x)
        if accumulate in (None, x.dtype):
            return self._apply(x)
        result = torch.empty_like(x)
        for columns, out, double, mixed in _in_float64(self._rows(x), result):
            out.copy_(self._dual(columns, 1, double, mixed))
        return result

    def mean(self, w: Tensor, mirror: MirrorMap) -> Tensor:
        self._count(w)
        if mirror.power is None:
            return mirror.to_primal(self._apply(mirror.to_dual(w)), w.dtype)
        if mirror.power == 1:
            return self._apply(w)
        return self._power_mean(w, mirror.power)

    def _power_mean(self, w: Tensor, p: float) -> Tensor:
        rows = self._rows(w)
        if not kernels.serve(p, *rows):
            return self._plain_power_mean(rows, PowerMap(p))
        if self.near is None:
            weights: Weights | Block = self.weights
        else:
            weights = Block(
                len(self.devices),
                sum(map(len, rows)),
                self.near.row,
                self.near.column,
                self.near.value,
            )
        return kernels.power_mean(rows, *weights.csr(), p, self.spare.like(w))

    def _plain_power_mean(self, rows: list[Tensor], mirror: PowerMap) -> Tensor:
        w, p, result = rows[0], mirror.p, torch.empty_like(rows[0])
        for columns, out, double, mixed in _in_float64(rows, result):
            z = self._dual(columns, p, double, mixed)
            out.copy_(root(z, p) if w.dtype == torch.float64 else root_(z, p, scratch=double))
            if not mirror.always_fits:
                size = out.abs()
                held = (
                    size.amin().item() > mirror.smallest
                )  # false for NaN, which is what root_ makes of an overflow
                if not held or (w.dtype == torch.float64 and size.amax().item() == math.inf):
                    all_rows = torch.cat(columns)
                    beyond = ~mirror.fits(all_rows).all(
                        0
                    )  # not exact zeros, but a dual outside float64
                    if beyond.any():
                        out[:, beyond] = self._scaled_power_mean(all_rows[:, beyond], p)
        return result

    def _dual(self, columns: list[Tensor], p: float, double: Tensor, mixed: Tensor) -> Tensor:
        """Σ_j a_ij·w_j^[p] in float64, of the stack's own rows in the memory of `mixed`, then of what others sent."""
        own, *others = columns
        z = self._product(signed_power_(double.copy_(own), p, scratch=mixed), out=mixed)
        for block, received in enumerate(others, 1):
            z = self._product(signed_power_(received.double(), p), block, out=z, more=True)
        return z

    def _scaled_power_mean(self, w: Tensor, p: float) -> Tensor:
        """The power mean for any magnitudes: each neighbourhood divides by its own largest |w_j| first."""
        row, column, value = self._entries()
        x = w.double()[column]
        scale = torch.zeros((len(self.devices), w.shape[1]), dtype=torch.float64, device=w.device)
        scale.scatter_reduce_(0, row[:, None].expand_as(x), x.abs(), "amax")
        scale = torch.where(scale == 0, 1.0, scale)
        terms = signed_power(x / scale[row], p) * value.double()[:, None]
        z = torch.zeros_like(scale).index_add_(0, row, terms)
        return (root(z, p, torch.float64) * scale).to(w.dtype)

    def neighbours(self, x: Tensor) -> Neighbours:
        self._count(x)
        receiver, sender, weight = self._entries()
        rows = self._rows(x)
        return Neighbours(
            receiver,
            sender,
            weight.to(x.dtype),
            (rows[0] if len(rows) == 1 else torch.cat(rows))[sender],
        )

    def with_message_size(self, message: int, first: int) -> StackedMix:
        return replace(self, message=(message, first))

    def all_reduce(self, x: Tensor, star: bool = False) -> Tensor | None:
        self.mixed = x
        here = x if self.active is None else x[self.active]
        m = self._here()
        if m == 0:
            return None
        size = x[0].numel() * self.itemsize
        if star:  # the whole vector to the server and back
            self.traffic.messages += 2 * m
            self.traffic.bytes += 2 * m * size
        else:  # a ring all-reduce: 2·(m − 1) messages a device, of 1/m of the vector each
            self.traffic.messages += 2 * (m - 1) * m
            self.traffic.bytes += 2 * max(m - 1, 0) * size
        self.traffic.averaged, self.traffic.star = self.traffic.averaged + size, star
        if self.part is None:
            return here.mean(0, keepdim=True)
        return torch.stack(self.part.exchange.gather(here.sum(0, keepdim=True))).sum(0) / m

    def _here(self) -> int:
        return (
            self.weights.devices if self.weights.active is None else int(self.weights.active.sum())
        )

    def _rows(self, x: Tensor) -> list[Tensor]:
        """All the rows that are mixed here: those of the stack, and those that each other process sent."""
        return [x, *self._swap(x)()]

    def _swap(self, x: Tensor) -> Callable[[], list[Tensor]]:
        """Send what others need; the call that this gives waits for what they send."""
        if self.part is None or self.near is None or not self.near.needed:
            return list
        receive, senders = (
            self.part.exchange.swap(x, self.near.wanted, self.near.needed),
            list(self.near.needed),
        )
        return lambda: [received[k].to(x.device) for received in (receive(),) for k in senders]

    def _entries(self) -> tuple[Tensor, Tensor, Tensor]:
        """The weights entry by entry: row, column, value; ascending by row, then by the sender's number."""
        if self.near is None:
            indptr, *rest = self.weights.csr()
            parts = [np.repeat(np.arange(self.weights.devices), np.diff(indptr)), *rest]
        else:
            parts = [self.near.row, self.near.column, self.near.value]
        row, column, value = (torch.from_numpy(part).to(self.devices.device) for part in parts)
        return row, column, value

    def _count(self, x: Tensor) -> None:
        self.mixed = x
        messages = self.weights.messages
        self.traffic.messages += messages
        if self.message is None:
            self.traffic.bytes += messages * x[0].numel() * self.itemsize
            self.traffic.over_link = self.traffic.over_link + x[0].numel() * self.itemsize
        else:
            known, first = self.message
            back = self.weights.value if self.weights.back is None else self.weights.back
            ways = np.stack([self.weights.value, back]) != 0
            new = (
                np.zeros_like(ways)
                if self.before is None
                else self.weights.new_since(self.before())
            )
            size = ways * np.where(new, first, known)
            self.traffic.bytes += int(size.sum())
            self.traffic.over_link = self.traffic.over_link + size

    def _apply(self, x: Tensor) -> Tensor:
        arriving = self._swap(x)  # while the own rows are mixed
        result = self._product(x.reshape(len(x), -1))
        for block, received in enumerate(arriving(), 1):
            result = self._product(
                received.reshape(len(received), -1), block, out=result, more=True
            )
        return result.view_as(x)

    def _product(
        self, x: Tensor, block: int = 0, out: Tensor | None = None, more: bool = False
    ) -> Tensor:
        """Σ_j a_ij·x_j over the stack's own rows, or over those that another process sent; `more`: added to `out`."""
        matrix = self._matrix(x.dtype, block)
        if isinstance(matrix, Tensor):
            return (
                out.addmm_(matrix, x) if more and out is not None else torch.mm(matrix, x, out=out)
            )
        first, column, value = matrix
        if kernels.serve(1, x):
            result = self.spare.like(x) if out is None else out
            return kernels.weighted_sums(first, column, value, x, result, more)
        sums = embedding_bag(
            column, x, first, mode="sum", per_sample_weights=value, include_last_offset=True
        )
        return out.add_(sums) if more and out is not None else sums

    def _matrix(self, dtype: torch.dtype, block: int) -> Tensor | _Sums:
        """The weights as what is fastest, as measured: dense, or for few links sparse.

        In float32 sums of rows are up to twice as fast as a sparse product, and take no memory beside their result; in
        float64 they are slower.
        """
        if (dtype, block) not in self._matrices:
            weights = self.weights if self.near is None else self._blocks[block]
            rows, columns = (
                len(self.devices),
                self.weights.devices if self.near is None else self._blocks[block].columns,
            )
            entries = (
                self.weights.devices + 2 * len(self.weights.value)
                if self.near is None
                else len(weights.value)
            )
            if entries * (6 if dtype == torch.float32 else 16) > rows * columns:
                matrix: Tensor | _Sums = torch.from_numpy(weights.dense()).to(
                    self.devices.device, dtype
                )
            else:
                first, column, value = (
                    torch.from_numpy(part).to(self.devices.device) for part in weights.csr()
                )
                value = value.to(dtype)
                if dtype == torch.float32:
                    matrix = _Sums(first.long(), column.long(), value)
                else:
                    matrix = torch.sparse_csr_tensor(
                        first.int(), column.int(), value, (rows, columns), check_invariants=False
                    )
            self._matrices[dtype, block] = matrix
        return self._matrices[dtype, block]

    @cached_property
    def _blocks(self) -> list[Block]:
        assert self.near is not None
        return self.near.blocks()
