"""Weighted sums and power means of rows: one row per device, one weight per link."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from gossamer.backend import compiled, limits
from gossamer.backend.choice import Call, operation
from gossamer.backend.compiled import Kernels
from gossamer.backend.powers import (
    block_columns,
    dual_always_fits,
    dual_fits,
    root,
    root_,
    signed_power_,
    smallest_base,
)

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
Allocate = Callable[[Tensor], Tensor]
"""Returns an uninitialised tensor like another one."""

with warnings.catch_warnings():  # torch warns once per process that its CSR tensors are in beta
    warnings.simplefilter("ignore")
    torch.eye(2).to_sparse_csr()


class Matrix(Protocol):
    """A matrix of weights: one row per receiver, one column per row that is mixed."""

    def csr(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Return indptr, columns and values of the matrix as compressed sparse rows."""

    def dense(self) -> FloatArray:
        """Return the matrix as an array."""


@dataclass(frozen=True)
class Block:
    """The weights for the rows of one tensor.

    Args:
        matrix: The weights.
        columns: Number of rows of the tensor.
        entries: Number of weights that may be nonzero.
    """

    matrix: Matrix
    columns: int
    entries: int


class _SparseRows(NamedTuple):
    """A sparse matrix as `embedding_bag` and the kernels take it."""

    indptr: Tensor
    column: Tensor
    value: Tensor


class MixWeights:
    """The weights a_ij of receivers i for rows j, which lie in one or more tensors.

    Sums are in ascending order of the columns. Formats are built when they are first needed.

    Args:
        receivers: Number of receivers.
        matrix: The weights for all rows, in the order of the tensors.
        blocks: Returns the same weights by tensor. The first tensor has one row per receiver.
        device: The torch device to compute on.
    """

    def __init__(
        self,
        receivers: int,
        matrix: Matrix,
        blocks: Callable[[], Sequence[Block]],
        device: torch.device,
    ) -> None:
        self._receivers = receivers
        self._matrix = matrix
        self._make_blocks = blocks
        self._device = device
        self._formats: dict[tuple[torch.dtype, int], Tensor | _SparseRows] = {}

    @cached_property
    def _blocks(self) -> Sequence[Block]:
        return self._make_blocks()

    def entries(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return receiver, column and value of every weight, ascending by receiver, then column."""
        indptr, column, value = self._matrix.csr()
        receiver = np.repeat(np.arange(self._receivers), np.diff(indptr))
        return (
            torch.from_numpy(receiver).to(self._device),
            torch.from_numpy(column).to(self._device),
            torch.from_numpy(value).to(self._device),
        )

    def is_sparse(self, dtype: torch.dtype, block: int = 0) -> bool:
        """True if products with rows of this dtype use a sparse format."""
        weights = self._format(dtype, block)
        return isinstance(weights, _SparseRows) or weights.layout == torch.sparse_csr

    # -- weighted sums ----------------------------------------------------------------------------

    def sums(
        self,
        x: Tensor,
        block: int = 0,
        out: Tensor | None = None,
        add: bool = False,
        allocate: Allocate = torch.empty_like,
    ) -> Tensor:
        """Return Σ_j a_ij·x_j over the rows of one tensor.

        Args:
            x: The rows [rows, columns].
            block: Number of the tensor.
            out: Memory for the result.
            add: Add the sums to `out`.
            allocate: Allocates the result, where it is not in `out` and torch does not.
        """
        weights = self._format(x.dtype, block)
        if isinstance(weights, Tensor):
            if add and out is not None:
                return out.addmm_(weights, x)
            return torch.mm(weights, x, out=out)
        kernels = None
        if compiled.accepts(x):
            kernels = SUMS.serving(x.shape[1])
        if kernels is not None:
            result = allocate(x) if out is None else out
            return kernels.weighted_sums(*weights, x, result, add)
        sums = _plain_sums(weights, x)
        if add and out is not None:
            return out.add_(sums)
        return sums

    def sums_in_float64(self, rows: list[Tensor]) -> Tensor:
        """Return Σ_j a_ij·x_j, summed in float64, in the dtype of the rows.

        Args:
            rows: The tensors of rows.
        """
        result = torch.empty_like(rows[0])
        for columns, out, double, mixed in _column_blocks(rows, result):
            out.copy_(self._dual_sums(columns, 1, double, mixed))
        return result

    def _format(self, dtype: torch.dtype, block: int) -> Tensor | _SparseRows:
        """Return a block of the weights in the format whose product is fastest."""
        if (dtype, block) not in self._formats:
            self._formats[dtype, block] = self._build_format(dtype, self._blocks[block])
        return self._formats[dtype, block]

    def _build_format(self, dtype: torch.dtype, block: Block) -> Tensor | _SparseRows:
        size = self._receivers * block.columns
        if block.entries * limits.SPARSE_BELOW[dtype] > size:
            return torch.from_numpy(block.matrix.dense()).to(self._device, dtype)
        csr = [torch.from_numpy(array).to(self._device) for array in block.matrix.csr()]
        indptr, column, value = csr
        value = value.to(dtype)
        if dtype == torch.float32:
            return _SparseRows(indptr.long(), column.long(), value)
        shape = (self._receivers, block.columns)
        return torch.sparse_csr_tensor(
            indptr.int(), column.int(), value, shape, check_invariants=False
        )

    # -- power means ------------------------------------------------------------------------------

    def power_means(
        self, rows: list[Tensor], p: float, allocate: Allocate = torch.empty_like
    ) -> Tensor:
        """Return (Σ_j a_ij·w_j^[p])^[1/p] for every receiver i. Right for any magnitudes.

        Args:
            rows: The tensors of rows w_j.
            p: The power, above 1.
            allocate: Allocates the result of the kernel.
        """
        kernels = None
        if compiled.accepts(*rows, p=p):
            kernels = POWER_MEANS.serving(p)
        if kernels is not None:
            return kernels.power_mean(rows, *self._matrix.csr(), p, allocate(rows[0]))
        return self.plain_power_means(rows, p)

    def plain_power_means(self, rows: list[Tensor], p: float) -> Tensor:
        """Return the power means by torch operations, block of columns by block of columns.

        Args:
            rows: The tensors of rows w_j.
            p: The power, above 1.
        """
        result = torch.empty_like(rows[0])
        single = result.dtype == torch.float32
        for columns, out, double, mixed in _column_blocks(rows, result):
            z = self._dual_sums(columns, p, double, mixed)
            out.copy_(root_(z, p, scratch=double) if single else root(z, p))
            if dual_always_fits(p) or _in_range(out, smallest_base(p)):
                continue
            # Columns whose dual is outside float64; an exact zero is not.
            all_rows = torch.cat(columns)
            beyond = ~dual_fits(all_rows, p).all(0)
            if beyond.any():
                out[:, beyond] = self.scaled_power_means(all_rows[:, beyond], p)
        return result

    def scaled_power_means(self, w: Tensor, p: float) -> Tensor:
        """Return the power means with the neighbourhoods divided by their largest |w_j| first.

        It is slower than `power_means`, which calls it where a dual is outside float64.

        Args:
            w: All rows, in one tensor.
            p: The power.
        """
        receiver, column, value = self.entries()
        x = w.double()[column]
        return scaled_power_means(x, receiver, value.double(), self._receivers, p).to(w.dtype)

    def _dual_sums(self, columns: list[Tensor], p: float, double: Tensor, mixed: Tensor) -> Tensor:
        """Return Σ_j a_ij·w_j^[p] in float64.

        Args:
            columns: Columns of each tensor of rows.
            p: The power.
            double: Scratch buffer for the powers of the first tensor's rows.
            mixed: Memory for the result.
        """
        first, *others = columns
        z = self.sums(signed_power_(double.copy_(first), p, scratch=mixed), out=mixed)
        for block, rows in enumerate(others, 1):
            z = self.sums(signed_power_(rows.double(), p), block, out=z, add=True)
        return z


def scaled_power_means(
    x: Tensor, receiver: Tensor, weight: Tensor, receivers: int, p: float
) -> Tensor:
    """Return (Σ a·x^[p])^[1/p] over the rows of each receiver, for any magnitudes and powers.

    Every neighbourhood is divided by its largest |x| first, element by element.

    Args:
        x: One row per link, float64.
        receiver: The receiver of each row.
        weight: The weight a of each row, float64.
        receivers: Number of receivers.
        p: The power.
    """
    scale = torch.zeros((receivers, x.shape[1]), dtype=torch.float64, device=x.device)
    scale.scatter_reduce_(0, receiver[:, None].expand_as(x), x.abs(), "amax")
    scale = torch.where(scale == 0, 1.0, scale)
    terms = signed_power_(x / scale[receiver], p) * weight[:, None]
    z = torch.zeros_like(scale).index_add_(0, receiver, terms)
    return root(z, p) * scale


def _in_range(power_means: Tensor, smallest: float) -> bool:
    """True if no element shows an overflow or underflow of the dual."""
    size = power_means.abs()
    # False for NaN, which is what root_ returns for an overflow.
    above = size.amin().item() > smallest
    return above and (power_means.dtype == torch.float32 or size.amax().item() != math.inf)


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


def _plain_sums(weights: _SparseRows, x: Tensor) -> Tensor:
    return embedding_bag(
        weights.column,
        x,
        weights.indptr,
        mode="sum",
        per_sample_weights=weights.value,
        include_last_offset=True,
    )


# -- what the implementations are measured with ---------------------------------------------------


@dataclass(frozen=True)
class _Circulant:
    """Equal weights for a number of rows from the receiver's own on."""

    receivers: int
    links: int

    def csr(self) -> tuple[IntArray, IntArray, FloatArray]:
        first = self.links * np.arange(self.receivers + 1)
        near = np.arange(self.receivers)[:, None] + np.arange(self.links)
        column = np.sort(near % self.receivers, axis=1).ravel()
        return first, column, np.full(len(column), 1 / self.links)

    def dense(self) -> FloatArray:
        first, column, value = self.csr()
        matrix = np.zeros((self.receivers, self.receivers))
        matrix[np.repeat(np.arange(self.receivers), np.diff(first)), column] = value
        return matrix


@operation("sums", sizes=(650, 7850))
def SUMS(columns: int) -> Call:
    """Prepare sums of eight rows, far apart in memory, for each of some receivers."""
    receivers = 10 * limits.CHOICE_ELEMENTS // columns
    x = torch.ones(limits.CHOICE_BYTES // (4 * columns), columns)
    first = 8 * torch.arange(receivers + 1)
    column = torch.randint(len(x), (8 * receivers,))
    weights = _SparseRows(first, column, torch.full((8 * receivers,), 1 / 8))
    out = torch.empty(receivers, columns)

    def call(kernels: Kernels | None) -> Tensor:
        if kernels is None:
            return _plain_sums(weights, x)
        return kernels.weighted_sums(*weights, x, out, add=False)

    return call


@operation("power mean", sizes=(3, 31))
def POWER_MEANS(p: int) -> Call:
    """Prepare the power means of four of ten models."""
    matrix = _Circulant(10, 4)
    weights = MixWeights(10, matrix, lambda: [Block(matrix, 10, 40)], torch.device("cpu"))
    rows = [torch.randn(10, limits.CHOICE_ELEMENTS // 10)]
    out = torch.empty_like(rows[0])

    def call(kernels: Kernels | None) -> Tensor:
        if kernels is None:
            return weights.plain_power_means(rows, p)
        return kernels.power_mean(rows, *matrix.csr(), p, out)

    return call
