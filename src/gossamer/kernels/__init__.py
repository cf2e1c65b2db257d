"""Compiled kernels for what takes most of a round's time: the rows of a batch, the power mean, the matched step.

They are compiled when the package is built, if there is a C compiler, and serve where they were measured to gain: on x86-64
with AVX2 or AVX-512, built by GCC, for float32 and whole p. Everywhere else plain tensor operations do the same, and they are
what the kernels are tested against.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.threads import Result, in_threads

_LENGTH, _SAMPLES, _SIXTEEN = 64, 8, 16  # as in kernels.c
_WORTH_A_THREAD = 50_000  # numbers
_IN_CACHE = 1 << 16


def _load() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(str(Path(__file__).with_name("kernels.so")))
    except OSError:  # not built
        return None
    if not library.gains():
        return None
    pointer, number, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
    library.power_mean.argtypes = [
        *(number, pointer, pointer, pointer, number, pointer, number, number, number, pointer, pointer, number)
    ]
    library.matched_step.argtypes = [number, pointer, pointer, real, number, real, ctypes.c_int, pointer]
    library.softmax_gradient.argtypes = [number, number, number, number, *[pointer] * 6]
    library.roots.argtypes = [number, pointer, number, pointer]
    library.gather.argtypes = [number, number, pointer, pointer, pointer]
    for function in (library.gather, library.softmax_gradient, library.power_mean, library.roots, library.matched_step):
        function.restype = None
    return library


library = _load()


def serve(p: float, *tensors: Tensor) -> bool:
    """Whether the kernels can do this: a power mean or a step of these."""
    whole = p == int(p) and p <= 256  # beyond, few numbers are within reach of their column's largest
    return library is not None and whole and all(x.dtype == torch.float32 and x.device.type == "cpu" for x in tensors)


def gather(x: Tensor, index: Tensor, out: Tensor) -> Tensor:
    """x[index], written to `out`. The index is not checked."""
    here = all(part.device.type == "cpu" and part.is_contiguous() for part in (x, index, out))
    if library is None or not here or index.dtype != torch.int64:
        return torch.index_select(x, 0, index, out=out)
    size = x[:1].numel() * x.element_size()

    def some(begin: int, end: int) -> None:
        library.gather(end - begin, size, x.data_ptr(), index.data_ptr() + 8 * begin, out.data_ptr() + size * begin)

    _shared_out(some, len(index), len(index) * size // 4)
    return out


def softmax_gradient(w: Tensor, x: Tensor, y: Tensor, index: Tensor, classes: int, out: Tensor) -> bool:
    """The gradient of softmax regression for some devices, from the rows index [devices, batch] of all samples x.

    False where the kernel does not serve, and nothing was done.
    """
    here = all(part.device.type == "cpu" and part.is_contiguous() for part in (w, x, y, index, out))
    types = [part.dtype for part in (w, x, out, y, index)]
    if library is None or not here or types != [*[torch.float32] * 3, *[torch.int64] * 2]:
        return False
    features, width = x.shape[1], _SIXTEEN * math.ceil((x.shape[1] + 1) / _SIXTEEN)
    if classes * width > _IN_CACHE:  # the products of a library read the weights less often
        return False
    room = torch.empty((2 * (classes + 1) + _SAMPLES) * width + _SAMPLES * (classes + _SIXTEEN - 1))
    addresses = (part.data_ptr() for part in (x, y, index, w, out, room))
    library.softmax_gradient(*index.shape, features, classes, *addresses)
    return True


def power_mean(
    models: list[Tensor], first: NDArray[np.int64], sender: NDArray[np.int64], weight: NDArray[np.float64], p: float
) -> Tensor:
    """(Σ_j a_ij·w_j^[p])^[1/p] for every receiver i, whose weights are weight[first[i] : first[i + 1]]; `sender` counts the
    rows of all `models`. Right for any magnitudes.
    """
    assert library is not None
    models = [rows.contiguous() for rows in models]  # held until the end: what follows are addresses
    columns = models[0].shape[1]
    address = np.concatenate([rows.data_ptr() + 4 * columns * np.arange(len(rows)) for rows in models])
    result = models[0].new_empty(len(first) - 1, columns)
    first, sender = first.astype(np.int64), sender.astype(np.int64)

    def some(begin: int, end: int) -> None:
        room = torch.empty(len(address) * _LENGTH, dtype=torch.float64)
        weights = len(first) - 1, first.ctypes.data, sender.ctypes.data, weight.ctypes.data
        numbers = len(address), address.ctypes.data, int(p)
        library.power_mean(*weights, *numbers, begin, end, room.data_ptr(), result.data_ptr(), columns)

    _shared_out(some, columns, result.numel())
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
        library.matched_step(end - begin, *at, rate, int(p), floor, safe, result.data_ptr() + 4 * begin)

    _shared_out(some, w.numel(), w.numel())
    return result


def _shared_out(some: Callable[[int, int], Result], length: int, numbers: int) -> list[Result]:
    """some(begin, end) for parts of 0 … length, a thread each where they are worth one."""
    threads = min(torch.get_num_threads(), max(1, numbers // _WORTH_A_THREAD))
    step = _LENGTH * math.ceil(length / (_LENGTH * threads))
    return in_threads([partial(some, begin, min(begin + step, length)) for begin in range(0, length, max(1, step))])
