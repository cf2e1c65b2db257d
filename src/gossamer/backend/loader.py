"""Loads the compiled kernels and decides whether they serve."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from gossamer._core import checks

VARIABLE = "GOSSAMER_BACKEND"
BACKENDS = ("auto", "torch")
PATH = Path(__file__).with_name("kernels.so")

_POINTER = ctypes.c_void_p
_INT64 = ctypes.c_int64
_DOUBLE = ctypes.c_double
_FLOAT = ctypes.c_float
_BOOL = ctypes.c_int

# Name of a function, its result and its arguments, in the order of kernels.c.
_SIGNATURES = {
    "instruction_set": (ctypes.c_int, []),
    "gather": (None, [_INT64, _INT64, _POINTER, _POINTER, _POINTER]),
    "find_levels": (_INT64, [_INT64, _POINTER, _FLOAT, _FLOAT, _POINTER]),
    "gather_levels": (None, [_INT64, _INT64, _POINTER, _FLOAT, _FLOAT, _POINTER, _POINTER]),
    "softmax_gradient": (
        None,
        [*[_INT64] * 4, _POINTER, _POINTER, _FLOAT, _FLOAT, *[_POINTER] * 5],
    ),
    "power_mean": (
        None,
        [_INT64, *[_POINTER] * 3, _INT64, _POINTER, *[_INT64] * 3, _POINTER, _POINTER, _INT64],
    ),
    "weighted_sums": (None, [_INT64, _INT64, *[_POINTER] * 4, _INT64, _BOOL, _POINTER]),
    "roots": (None, [_INT64, _POINTER, _INT64, _POINTER]),
    "matched_step": (
        None,
        [_INT64, _POINTER, _POINTER, _DOUBLE, _INT64, _DOUBLE, _BOOL, _POINTER],
    ),
}


def _load() -> ctypes.CDLL | None:
    try:
        loaded = ctypes.CDLL(str(PATH))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(loaded, name)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError):  # not built, or built from another version
        return None
    return loaded


_built = _load()


def chosen() -> ctypes.CDLL | None:
    """Return the kernels if they serve on this machine, or None.

    Raises:
        InputError: If the environment variable names no backend.
    """
    backend = os.environ.get(VARIABLE, "auto")
    checks.one_of(VARIABLE, backend, BACKENDS)
    if backend == "torch" or _built is None or not _built.instruction_set():
        return None
    return _built


def is_stale() -> bool:
    """True if there are kernels, but of another version."""
    return _built is None and PATH.exists()


def why_none() -> str:
    """Return why `chosen` returns no kernels."""
    if os.environ.get(VARIABLE) == "torch":
        return f"{VARIABLE} = torch"
    if is_stale():
        return "they are of another version; install gossamer again"
    if _built is None:
        return "gossamer was installed without GCC"
    return "the processor has no AVX2"
