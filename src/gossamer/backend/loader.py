"""Loads the compiled kernels: one set of functions per instruction set of this processor."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

PATH = Path(__file__).with_name("kernels.so")

TITLES = {"avx512": "AVX-512", "avx2": "AVX2", "neon": "NEON"}
"""The instruction sets that kernels are compiled for, best first, and how they are written."""

LAYOUT = 2
"""As in kernels.c. It changes with the arguments of the kernels."""

Function = Callable[..., Any]


class Levels(ctypes.Structure):
    """Samples that are stored as bytes, as in kernels_common.h."""

    _fields_ = (
        ("level", ctypes.c_void_p),
        ("scale", ctypes.c_void_p),
        ("step", ctypes.c_float),
        ("zero", ctypes.c_float),
    )


_POINTER = ctypes.c_void_p
_INT64 = ctypes.c_int64
_DOUBLE = ctypes.c_double
_BOOL = ctypes.c_int
_LEVELS = ctypes.POINTER(Levels)

# Name of a function, its result and its arguments, in the order of kernels_template.h.
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
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
    "gather": (None, [_INT64, _INT64, _POINTER, _POINTER, _POINTER]),
    "gather_levels": (None, [_INT64, _INT64, _LEVELS, _POINTER, _POINTER]),
    "find_levels": (_INT64, [_INT64, _INT64, _POINTER, _LEVELS, _POINTER]),
    "softmax_gradient": (None, [*[_INT64] * 4, _POINTER, _LEVELS, *[_POINTER] * 5]),
}


class Library:
    """The functions of kernels_template.h, compiled for one instruction set.

    Args:
        loaded: The shared library.
        name: The instruction set, one of `TITLES`.
    """

    power_mean: Function
    weighted_sums: Function
    roots: Function
    matched_step: Function
    gather: Function
    gather_levels: Function
    find_levels: Function
    softmax_gradient: Function

    def __init__(self, loaded: ctypes.CDLL, name: str) -> None:
        for function_name, (result, arguments) in _SIGNATURES.items():
            function = getattr(loaded, f"{function_name}_{name}")
            function.restype = result
            function.argtypes = arguments
            setattr(self, function_name, function)


def load() -> dict[str, Library]:
    """Return the kernels that this processor can run, by instruction set, best first.

    Returns:
        An empty dictionary if the kernels are not built, are of another version, or have no
        instruction set of this processor.
    """
    loaded = _open()
    found: dict[str, Library] = {}
    if loaded is None or _layout(loaded) != LAYOUT:
        return found
    for name in TITLES:
        has = getattr(loaded, f"has_{name}", None)  # None: of another family of processors
        if has is not None and has():
            found[name] = Library(loaded, name)
    return found


def load_function(name: str, result: Any, arguments: list[Any]) -> Function | None:
    """Return a function that is compiled once for all instruction sets; None if there is none.

    Args:
        name: Its name in kernels_events.h.
        result: The ctypes type of its result.
        arguments: Those of its arguments.
    """
    function = getattr(_open(), name, None)  # None: not built, or of an earlier version
    if function is None:
        return None
    function.restype = result
    function.argtypes = arguments
    return cast(Function, function)


def _open() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(str(PATH))
    except OSError:  # not built
        return None


def _layout(loaded: ctypes.CDLL) -> int:
    layout = getattr(loaded, "kernels_layout", None)
    if layout is None:
        return 1
    return int(layout())


def is_stale() -> bool:
    """True if there are kernels, but of another version."""
    loaded = _open()
    return loaded is not None and _layout(loaded) != LAYOUT


def why_none() -> str:
    """Return why `load` finds no kernels."""
    if is_stale():
        return "they are of another version; install gossamer again"
    if _open() is None:
        return "gossamer was installed without a C compiler"
    return "the processor has neither AVX2 nor NEON"
