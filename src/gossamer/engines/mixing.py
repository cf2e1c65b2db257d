"""One round's mixing for a stack of all devices, or of a part of them: dense or sparse by what is faster."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from gossamer.algorithms.base import Neighbours
from gossamer.engines.part import Near, Part
from gossamer.mirror import PowerMap, columns_at_once, root, root_, signed_power, signed_power_
from gossamer.network.base import IntArray
from gossamer.network.weights import FloatArray, Weights

with warnings.catch_warnings():  # torch says once a process that its CSR tensors are in beta
    warnings.simplefilter("ignore")
    torch.eye(2).to_sparse_csr()


def _in_float64(x: Tensor, result: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Some columns of x and of the result at a time, with room for two float64 copies of x that stay in the cache."""
    width = min(columns_at_once(len(x)), x.shape[1])
    double, mixed = (torch.empty(len(x), width, dtype=torch.float64, device=x.device) for _ in range(2))
    for columns, out in zip(x.split(width, 1), result.split(width, 1), strict=True):
        if columns.shape[1] != width:
            double, mixed = (room.view(-1)[: columns.numel()].view(columns.shape) for room in (double, mixed))
        yield columns, out, double, mixed


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
    mixed: Tensor | None = None  # what went into the last mix: shows where a value that is not finite came from
    before: Callable[[], Weights] | None = None  # the round before (None: all know all that they were sent until now)
    message: tuple[int, int] | None = None  # bytes of a message, and of one to a new neighbour, where it is not the vector
    part: Part | None = None
    near: Near | None = None  # part.near(weights)
    linear: ClassVar[bool] = True
    _matrices: dict[torch.dtype, Tensor] = field(default_factory=dict)

    @property
    def active(self) -> Tensor | None:
        active = self.weights.active
        if active is None:
            return None
        return torch.from_numpy(active if self.part is None else active[self.part.devices]).to(self.devices.device)

    def __call__(self, x: Tensor) -> Tensor:
        self._count(x)
        return self._apply(self._all(x))

    def exactly(self, x: Tensor) -> Tensor:
        self._count(x)
        rows = self._all(x)
        if x.dtype == torch.float64:
            return self._apply(rows)
        result = torch.empty_like(x)
        for columns, out, double, mixed in _in_float64(rows, result):
            out.copy_(torch.mm(self._matrix(torch.float64), double.copy_(columns), out=mixed[: len(x)]))
        return result

    def power_mean(self, w: Tensor, p: float) -> Tensor:
        self._count(w)
        rows = self._all(w)
        if p == 1:
            return self._apply(rows)
        mirror, result = PowerMap(p), torch.empty_like(w)
        for columns, out, double, mixed in _in_float64(rows, result):
            z = signed_power_(double.copy_(columns), p, room=mixed)
            z = torch.mm(self._matrix(torch.float64), z, out=mixed[: len(w)])
            out.copy_(root(z, p) if w.dtype == torch.float64 else root_(z, p, room=double[: len(w)]))
            if not mirror.always_fits:
                size = out.abs()
                held = size.amin().item() > mirror.smallest  # false for NaN, which is what root_ makes of an overflow
                if not held or (w.dtype == torch.float64 and size.amax().item() == math.inf):
                    beyond = ~mirror.fits(columns).all(0)  # not exact zeros, but a dual outside float64
                    if beyond.any():
                        out[:, beyond] = self._scaled_power_mean(columns[:, beyond], p)
        return result

    def _scaled_power_mean(self, w: Tensor, p: float) -> Tensor:
        """The power mean for any magnitudes: each neighbourhood divides by its own largest |w_j| first."""
        indptr, column, value = (torch.from_numpy(part).to(w.device) for part in self._csr())
        row = torch.repeat_interleave(torch.arange(len(indptr) - 1, device=w.device), indptr.diff())
        x = w.double()[column]
        scale = torch.zeros((len(indptr) - 1, w.shape[1]), dtype=torch.float64, device=w.device)
        scale.scatter_reduce_(0, row[:, None].expand_as(x), x.abs(), "amax")
        scale = torch.where(scale == 0, 1.0, scale)
        terms = signed_power(x / scale[row], p) * value.double()[:, None]
        z = torch.zeros_like(scale).index_add_(0, row, terms)
        return (root(z, p, torch.float64) * scale).to(w.dtype)

    def neighbours(self, x: Tensor) -> Neighbours:
        self._count(x)
        indptr, column, weight = (torch.from_numpy(part).to(x.device) for part in self._csr())
        receiver = torch.repeat_interleave(torch.arange(len(x), device=x.device), indptr.diff())
        sender = column if self.near is None else torch.from_numpy(self.near.rows()).to(x.device)[column]
        return Neighbours(receiver, sender, weight.to(x.dtype), self._all(x)[column])

    def sending(self, message: int, first: int) -> StackedMix:
        return replace(self, message=(message, first))

    def mean(self, x: Tensor, star: bool = False) -> Tensor:
        self.mixed = x
        here = x if self.active is None else x[self.active]
        m, size = self._here(), x[0].numel() * self.itemsize
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

    def everywhere(self, holds: bool) -> bool:
        if self.part is None:
            return holds
        return all(bool(x) for x in self.part.exchange.gather(torch.tensor([holds], dtype=torch.uint8)))

    def _here(self) -> int:
        return self.weights.devices if self.weights.active is None else int(self.weights.active.sum())

    def _all(self, x: Tensor) -> Tensor:
        """All the rows that are mixed here: those of the stack, and between them those that other processes hold."""
        if self.part is None or self.near is None or not self.near.needed:
            return x
        near = self.near
        sent = {k: x[torch.from_numpy(rows)].cpu() for k, rows in near.wanted.items()}
        received = {k: torch.empty((len(rows), *x.shape[1:]), dtype=x.dtype) for k, rows in near.needed.items()}
        self.part.exchange.swap(sent, received)
        rows = x.new_empty((near.senders, *x.shape[1:]))
        rows[torch.from_numpy(near.own)] = x
        for k, here in near.needed.items():
            rows[torch.from_numpy(here)] = received[k].to(x.device)
        return rows

    def _csr(self) -> tuple[IntArray, IntArray, FloatArray]:
        return self.weights.csr() if self.near is None else self.near[:3]

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
            new = np.zeros_like(ways) if self.before is None else self.weights.new_since(self.before())
            size = ways * np.where(new, first, known)
            self.traffic.bytes += int(size.sum())
            self.traffic.over_link = self.traffic.over_link + size

    def _apply(self, rows: Tensor) -> Tensor:
        return torch.mm(self._matrix(rows.dtype), rows.reshape(len(rows), -1)).view(-1, *rows.shape[1:])

    def _matrix(self, dtype: torch.dtype) -> Tensor:
        if dtype not in self._matrices:
            size = len(self.devices), self.weights.devices if self.near is None else self.near.senders
            entries = self.weights.devices + 2 * len(self.weights.value) if self.near is None else len(self.near.value)
            # measured: a sparse product gains below one entry in sixteen
            if size[1] <= 64 or entries * 16 > size[0] * size[1]:
                dense = self.weights.dense() if self.near is None else self.near.dense()
                matrix = torch.from_numpy(dense).to(self.devices.device, dtype)
            else:
                indptr, column, value = (torch.from_numpy(part) for part in self._csr())
                matrix = torch.sparse_csr_tensor(
                    indptr.int(),
                    column.int(),
                    value.to(dtype),
                    size,
                    device=self.devices.device,
                    check_invariants=False,
                )
            self._matrices[dtype] = matrix
        return self._matrices[dtype]
