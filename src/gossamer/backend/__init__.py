"""Compiled kernels for what takes most of a round's time: the rows of a batch, the power mean, the matched step.

They are compiled when the package is built, if there is a C compiler, and serve where they were measured to gain: on x86-64
with AVX2 or AVX-512, built by GCC, for float32 and whole p. Everywhere else plain tensor operations do the same, and they are
what the kernels are tested against.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer._core.threads import Result, available_threads, run_in_threads

_LENGTH, _SAMPLES, _SIXTEEN = 64, 8, 16  # as in kernels.c
_WORTH_A_THREAD = 50_000  # numbers
_IN_CACHE = 1 << 16
_WORTH_LEVELS = 1 << 20  # numbers


def _load() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(str(Path(__file__).with_name("kernels.so")))
    except OSError:  # not built
        return None
    if not library.gains():
        return None
    pointer, number, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
    library.power_mean.argtypes = [
        *(
            number,
            pointer,
            pointer,
            pointer,
            number,
            pointer,
            number,
            number,
            number,
            pointer,
            pointer,
            number,
        )
    ]
    library.matched_step.argtypes = [
        number,
        pointer,
        pointer,
        real,
        number,
        real,
        ctypes.c_int,
        pointer,
    ]
    library.find_levels.argtypes = [number, pointer, *[ctypes.c_float] * 2, pointer]
    library.gather_levels.argtypes = [
        number,
        number,
        pointer,
        *[ctypes.c_float] * 2,
        pointer,
        pointer,
    ]
    library.softmax_gradient.argtypes = [
        *[number] * 4,
        pointer,
        pointer,
        *[ctypes.c_float] * 2,
        *[pointer] * 5,
    ]
    library.weighted_sums.argtypes = [number, number, *[pointer] * 4, number, ctypes.c_int, pointer]
    library.roots.argtypes = [number, pointer, number, pointer]
    library.gather.argtypes = [number, number, pointer, pointer, pointer]
    library.find_levels.restype = number
    for name in (
        "gather",
        "gather_levels",
        "softmax_gradient",
        "power_mean",
        "weighted_sums",
        "roots",
        "matched_step",
    ):
        getattr(library, name).restype = None
    return library


library = _load()


def serve(p: float, *tensors: Tensor) -> bool:
    """Whether the kernels can do this: a power mean or a step of these."""
    whole = (
        p == int(p) and p <= 256
    )  # beyond, few numbers are within reach of their column's largest
    return (
        library is not None
        and whole
        and all(x.dtype == torch.float32 and x.device.type == "cpu" for x in tensors)
    )


@dataclass(frozen=True, eq=False)
class Rows:
    """All samples, a row each. Where nothing is lost by it they are kept as bytes too: x = zero + step·levels, bit for bit.

    What limits the training of a small model is to read its samples from memory. Images were bytes before they were scaled,
    and bytes are a quarter of what there is to read.
    """

    x: Tensor
    levels: Tensor | None = None
    step: float = 1.0
    zero: float = 0.0

    @classmethod
    def of(cls, x: Tensor) -> Rows:
        """As levels if they are such, and so many that they do not stay in the processor's cache."""
        if (
            library is None
            or x.dtype != torch.float32
            or x.device.type != "cpu"
            or x.numel() < _WORTH_LEVELS
        ):
            return cls(x)
        values = np.unique(x[:: max(1, len(x) // 1000)].numpy())
        if not 2 <= len(values) <= 256 or not np.isfinite(values).all():
            return cls(x)
        exact = values.astype(np.float64)
        span = exact[-1] - exact[0]
        count = round(span / np.diff(exact).min())
        if count > 255 or span > 1e30:
            return cls(x)
        rough = np.float32(span / count)
        for step in (
            rough,
            np.nextafter(rough, np.float32(0)),
            np.nextafter(rough, np.float32(np.inf)),
        ):
            scale = float(step), float(values[0])
            if (
                _levels(torch.from_numpy(values), *scale) is not None
                and (found := _levels(x, *scale)) is not None
            ):
                return cls(x, found, *scale)
        return cls(x)


def _levels(x: Tensor, step: float, zero: float) -> Tensor | None:
    """The levels of all x, if they are just that."""
    assert library is not None
    levels = torch.from_numpy(
        np.empty(x.shape, np.uint8)
    )  # NumPy asks for large pages: a tenth faster, read in any order

    def some(begin: int, end: int) -> bool:
        at = x.data_ptr() + 4 * begin, step, zero, levels.data_ptr() + begin
        return not library.find_levels(end - begin, *at)

    return levels if all(_shared_out(some, x.numel(), x.numel())) else None


def gather(rows: Rows, index: Tensor, out: Tensor) -> Tensor:
    """x[index], written to `out`. The index is not checked."""
    x, levels = rows.x, rows.levels
    here = all(part.device.type == "cpu" and part.is_contiguous() for part in (x, index, out))
    if library is None or not here or index.dtype != torch.int64:
        return torch.index_select(x, 0, index, out=out)
    numbers = x[:1].numel()
    size = numbers * x.element_size()

    def some(begin: int, end: int) -> None:
        at, to = index.data_ptr() + 8 * begin, out.data_ptr() + size * begin
        if levels is None:
            library.gather(end - begin, size, x.data_ptr(), at, to)
        else:
            library.gather_levels(
                end - begin, numbers, levels.data_ptr(), rows.step, rows.zero, at, to
            )

    _shared_out(some, len(index), len(index) * size // 4)
    return out


def softmax_gradient(
    w: Tensor, rows: Rows, y: Tensor, index: Tensor, classes: int, out: Tensor
) -> bool:
    """The gradient of softmax regression for some devices, from the rows index [devices, batch] of all samples.

    False where the kernel does not serve, and nothing was done.
    """
    x, levels = rows.x, rows.levels
    here = all(part.device.type == "cpu" and part.is_contiguous() for part in (w, x, y, index, out))
    types = [part.dtype for part in (w, x, out, y, index)]
    if library is None or not here or types != [*[torch.float32] * 3, *[torch.int64] * 2]:
        return False
    features, width = x.shape[1], _SIXTEEN * math.ceil((x.shape[1] + 1) / _SIXTEEN)
    if classes * width > _IN_CACHE:  # the products of a library read the weights less often
        return False
    room = torch.empty((2 * (classes + 1) + _SAMPLES) * width + _SAMPLES * (classes + 1))
    samples = x.data_ptr(), None if levels is None else levels.data_ptr(), rows.step, rows.zero
    addresses = (part.data_ptr() for part in (y, index, w, out, room))
    library.softmax_gradient(*index.shape, features, classes, *samples, *addresses)
    return True


def power_mean(
    models: list[Tensor],
    first: NDArray[np.int64],
    sender: NDArray[np.int64],
    weight: NDArray[np.float64],
    p: float,
    result: Tensor,
) -> Tensor:
    """(Σ_j a_ij·w_j^[p])^[1/p] for every receiver i, whose weights are weight[first[i] : first[i + 1]]; `sender` counts the
    rows of all `models`. Right for any magnitudes. Written to `result`.
    """
    assert library is not None
    models = [
        rows.contiguous() for rows in models
    ]  # held until the end: what follows are addresses
    columns = models[0].shape[1]
    address = np.concatenate(
        [np.arange(rows.shape[0]) * (4 * columns) + rows.data_ptr() for rows in models]
    )
    first, sender = np.ascontiguousarray(first, np.int64), np.ascontiguousarray(sender, np.int64)
    weight = np.ascontiguousarray(weight, np.float64)
    at = [array.ctypes.data for array in (first, sender, weight, address)]

    def some(begin: int, end: int) -> None:
        room = torch.empty(len(address) * _LENGTH, dtype=torch.float64)
        numbers = len(address), at[3], int(p), begin, end
        library.power_mean(
            result.shape[0], *at[:3], *numbers, room.data_ptr(), result.data_ptr(), columns
        )

    _shared_out(some, columns, result.numel())
    return result


def weighted_sums(
    first: Tensor, sender: Tensor, weight: Tensor, x: Tensor, result: Tensor, more: bool
) -> Tensor:
    """Σ_j a_ij·x_j for every receiver i, whose weights are weight[first[i] : first[i + 1]]. Written to `result`, or added."""
    assert library is not None
    x = x.contiguous()

    def some(begin: int, end: int) -> None:
        addresses = (part.data_ptr() for part in (first, sender, weight, x))
        library.weighted_sums(begin, end, *addresses, x.shape[1], more, result.data_ptr())

    _shared_out(some, len(result), result.numel(), grain=1)
    return result


def roots(z: Tensor, p: float) -> Tensor:
    """z^[1/p] of float32 duals."""
    assert library is not None
    z = z.contiguous()
    result = torch.empty_like(z)

    def some(begin: int, end: int) -> None:
        library.roots(end - begin, z.data_ptr() + 4 * begin, int(p), result.data_ptr() + 4 * begin)

    _shared_out(some, z.numel(), z.numel())
    return result


def matched_step(w: Tensor, d: Tensor, rate: float, p: float, floor: float, safe: bool) -> Tensor:
    """s·((w/s)^[p] − rate·p·d/s)^[1/p] with s = max(|w|, floor); `safe`: w − rate·d where the sign would change."""
    assert library is not None
    w, d = w.contiguous(), d.contiguous()
    result = torch.empty_like(w)

    def some(begin: int, end: int) -> None:
        at = (x.data_ptr() + 4 * begin for x in (w, d))
        library.matched_step(
            end - begin, *at, rate, int(p), floor, safe, result.data_ptr() + 4 * begin
        )

    _shared_out(some, w.numel(), w.numel())
    return result


def _shared_out(
    some: Callable[[int, int], Result], length: int, numbers: int, grain: int = _LENGTH
) -> list[Result]:
    """some(begin, end) for parts of 0 … length that are multiples of `grain`, a thread each where they are worth one."""
    threads = min(available_threads(), numbers // _WORTH_A_THREAD)
    if threads < 2:
        return [some(0, length)]
    step = grain * math.ceil(length / (grain * threads))
    return run_in_threads(
        [partial(some, begin, min(begin + step, length)) for begin in range(0, length, step)]
    )
