"""Compiled kernels (kernels.c), called through ctypes.

They are compiled when the package is built, if there is a C compiler, and compute with float32
tensors on the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer._core.threads import Result, available_threads, run_in_threads
from gossamer.backend import limits, loader
from gossamer.backend.levels import Levels, Scale

# As in kernels_common.h.
LENGTH = 64
SIXTEEN = 16
SLOPES = 8


def accepts(*tensors: Tensor, p: float = 1) -> bool:
    """True if the kernels can compute with these tensors and this p.

    Args:
        tensors: The tensors that are read or written.
        p: The power of the mirror map.
    """
    if p != int(p) or p > limits.KERNEL_POWER:
        return False
    return all(x.dtype == torch.float32 and x.device.type == "cpu" for x in tensors)


def accepts_gather(x: Tensor, index: Tensor, out: Tensor) -> bool:
    """True if `gather` can read these samples, of any dtype.

    Args:
        x: The samples.
        index: Sample numbers.
        out: Buffer for the result.
    """
    return index.dtype == torch.int64 and _in_order(x, index, out)


def accepts_gradient(
    w: Tensor, x: Tensor, y: Tensor, index: Tensor, classes: int, out: Tensor
) -> bool:
    """True if `softmax_gradient` can compute with these tensors.

    Args:
        w: The models.
        x: The samples [samples, features].
        y: Their classes.
        index: Sample numbers [devices, batch].
        classes: Number of classes.
        out: Buffer like w.
    """
    if not accepts(w, x, out) or y.dtype != torch.int64 or index.dtype != torch.int64:
        return False
    return _in_order(w, x, y, index, out) and classes * _width(x) <= limits.GRADIENT_WEIGHTS


def _in_order(*tensors: Tensor) -> bool:
    return all(x.device.type == "cpu" and x.is_contiguous() for x in tensors)


def _width(x: Tensor) -> int:
    """Return the elements of a sample and its 1 for the bias, filled up to whole vectors."""
    return SIXTEEN * math.ceil((x.shape[1] + 1) / SIXTEEN)


class Kernels:
    """The kernels of one instruction set.

    Args:
        name: The instruction set, one of `loader.TITLES`.
        library: Its functions.
    """

    def __init__(self, name: str, library: loader.Library) -> None:
        self.name = name
        self._library = library

    def find_levels(self, x: Tensor, scale: Scale) -> Levels | None:
        """Return the bytes that x is read back from bit for bit, or None if there are none.

        Args:
            x: The samples, float32, one per row.
            scale: The values of the levels.
        """
        # NumPy asks for large pages: reading rows in any order is a tenth faster.
        levels = Levels(torch.from_numpy(np.empty(x.shape, np.uint8)), scale)
        elements = x[:1].numel()

        def part(begin: int, end: int) -> bool:
            source = x.data_ptr() + 4 * elements * begin
            target = levels.bytes.data_ptr() + elements * begin
            arguments = (end - begin, elements, source, levels.reference, target)
            return not self._library.find_levels(*arguments)

        if all(_share_out(part, len(x), x.numel(), grain=1)):
            return levels
        return None

    def gather(self, x: Tensor, levels: Levels | None, index: Tensor, out: Tensor) -> Tensor:
        """Write x[index] to a buffer.

        Args:
            x: The samples, of any dtype.
            levels: The samples as bytes, or None.
            index: Sample numbers. They are not checked.
            out: Buffer for the result.

        Returns:
            The buffer.
        """
        elements = x[:1].numel()
        size = elements * x.element_size()

        def part(begin: int, end: int) -> None:
            numbers = index.data_ptr() + 8 * begin
            target = out.data_ptr() + size * begin
            if levels is None:
                self._library.gather(end - begin, size, x.data_ptr(), numbers, target)
            else:
                self._library.gather_levels(
                    end - begin, elements, levels.reference, numbers, target
                )

        _share_out(part, len(index), len(index) * size // 4)
        return out

    def softmax_gradient(
        self,
        w: Tensor,
        x: Tensor,
        levels: Levels | None,
        y: Tensor,
        index: Tensor,
        classes: int,
        out: Tensor,
    ) -> None:
        """Write the gradients of softmax regression to a buffer.

        Args:
            w: Weight matrices [devices, classes·(features + 1)], the bias in the last column.
            x: The samples [samples, features].
            levels: The samples as bytes, or None.
            y: The classes of all samples.
            index: Sample numbers of the batches [devices, batch]. They are not checked.
            classes: Number of classes.
            out: Buffer like w.
        """
        width = _width(x)
        scratch = torch.empty((2 * (classes + 1) + SLOPES) * width + SLOPES * (classes + 1))
        self._library.softmax_gradient(
            *index.shape,
            x.shape[1],
            classes,
            x.data_ptr(),
            levels and levels.reference,
            y.data_ptr(),
            index.data_ptr(),
            w.data_ptr(),
            out.data_ptr(),
            scratch.data_ptr(),
        )

    def power_mean(
        self,
        models: list[Tensor],
        first: NDArray[np.int64],
        sender: NDArray[np.int64],
        weight: NDArray[np.float64],
        p: float,
        out: Tensor,
    ) -> Tensor:
        """Write (Σ_j a_ij·w_j^[p])^[1/p] for every receiver i to `out`. Right for any magnitudes.

        Args:
            models: Tensors of models, one model per row.
            first: The weights of receiver i are weight[first[i] : first[i + 1]].
            sender: The model of each weight: a row number, counted over all `models`.
            weight: The weights a_ij.
            p: A whole number.
            out: Buffer [receivers, parameters].
        """
        models = [
            rows.contiguous() for rows in models
        ]  # kept until the end: the kernel has addresses
        columns = models[0].shape[1]
        addresses = np.concatenate(
            [np.arange(rows.shape[0]) * (4 * columns) + rows.data_ptr() for rows in models]
        )
        first = np.ascontiguousarray(first, np.int64)
        sender = np.ascontiguousarray(sender, np.int64)
        weight = np.ascontiguousarray(weight, np.float64)

        def part(begin: int, end: int) -> None:
            scratch = torch.empty(len(addresses) * LENGTH, dtype=torch.float64)
            self._library.power_mean(
                out.shape[0],
                first.ctypes.data,
                sender.ctypes.data,
                weight.ctypes.data,
                len(addresses),
                addresses.ctypes.data,
                int(p),
                begin,
                end,
                scratch.data_ptr(),
                out.data_ptr(),
                columns,
            )

        _share_out(part, columns, out.numel())
        return out

    def weighted_sums(
        self, first: Tensor, sender: Tensor, weight: Tensor, x: Tensor, out: Tensor, add: bool
    ) -> Tensor:
        """Write Σ_j a_ij·x_j for every receiver i to `out`, or add it.

        Args:
            first: The weights of receiver i are weight[first[i] : first[i + 1]].
            sender: The row of x of each weight.
            weight: The weights a_ij, float32.
            x: The rows x_j.
            out: Buffer [receivers, columns].
            add: Add to what the buffer holds.
        """
        x = x.contiguous()

        def part(begin: int, end: int) -> None:
            self._library.weighted_sums(
                begin,
                end,
                first.data_ptr(),
                sender.data_ptr(),
                weight.data_ptr(),
                x.data_ptr(),
                x.shape[1],
                add,
                out.data_ptr(),
            )

        _share_out(part, len(out), out.numel(), grain=1)
        return out

    def roots(self, z: Tensor, p: float) -> Tensor:
        """Return z^[1/p].

        Args:
            z: Duals, float32.
            p: A whole number.
        """
        z = z.contiguous()
        result = torch.empty_like(z)

        def part(begin: int, end: int) -> None:
            self._library.roots(
                end - begin, z.data_ptr() + 4 * begin, int(p), result.data_ptr() + 4 * begin
            )

        _share_out(part, z.numel(), z.numel())
        return result

    def matched_step(
        self, w: Tensor, d: Tensor, rate: float, p: float, floor: float, safe: bool
    ) -> Tensor:
        """Return s·((w/s)^[p] − rate·p·d/s)^[1/p] with s = max(|w|, floor), for a whole p.

        Args:
            w: The models.
            d: The directions.
            rate: The step size.
            p: The power.
            floor: Smallest s.
            safe: Return w − rate·d where the sign would change.
        """
        w = w.contiguous()
        d = d.contiguous()
        result = torch.empty_like(w)

        def part(begin: int, end: int) -> None:
            self._library.matched_step(
                end - begin,
                w.data_ptr() + 4 * begin,
                d.data_ptr() + 4 * begin,
                rate,
                int(p),
                floor,
                safe,
                result.data_ptr() + 4 * begin,
            )

        _share_out(part, w.numel(), w.numel())
        return result


def _share_out(
    part: Callable[[int, int], Result], length: int, elements: int, grain: int = LENGTH
) -> list[Result]:
    """Call part(begin, end) for parts of 0 … length, in threads where there are enough elements.

    Args:
        part: The function.
        length: End of the last part.
        elements: Elements of the whole call.
        grain: Every part but the last is a multiple of this long.
    """
    threads = min(available_threads(), elements // limits.ELEMENTS_PER_THREAD)
    if threads < 2:
        return [part(0, length)]
    step = grain * math.ceil(length / (grain * threads))
    jobs = [partial(part, begin, min(begin + step, length)) for begin in range(0, length, step)]
    return run_in_threads(jobs)
