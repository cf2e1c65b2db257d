"""Compiled functions whose results are exact: equal to those of plain code, bit for bit.

So no measurement chooses between the two: compiled code serves wherever there is any, unless
GOSSAMER_BACKEND is "torch".
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

from gossamer.backend import choice, loader

_POINTER = ctypes.c_void_p
_INT64 = ctypes.c_int64

# Name of a function, its result and its arguments.
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "pair_events": (_INT64, [_POINTER, _POINTER]),
    "background_events": (_INT64, [_POINTER, _POINTER]),
    "neighbours": (None, [_INT64, _INT64, *[_POINTER] * 6]),
    "wave_numbers": (_INT64, [_INT64, *[_POINTER] * 3, _INT64, *[_POINTER] * 2]),
    "sample_numbers": (None, [_INT64, _INT64, *[_POINTER] * 5]),
    "get_rows": (None, [_INT64, _INT64, *[_POINTER] * 3]),
    "copy_rows": (None, [_INT64, _INT64, *[_POINTER] * 3]),
    "set_rows": (None, [_INT64, _INT64, *[_POINTER] * 3]),
    "average_pairs_float": (None, [_INT64, _INT64, *[_POINTER] * 4]),
    "average_pairs_double": (None, [_INT64, _INT64, *[_POINTER] * 4]),
}


def compiled_function(name: str) -> loader.Function | None:
    """Return a compiled function; None if there is none, or the environment forces plain code.

    Args:
        name: Its name in kernels_events.h.
    """
    if os.environ.get(choice.VARIABLE) == choice.TORCH:
        return None
    return _loaded(name)


@cache
def _loaded(name: str) -> loader.Function | None:
    return loader.load_function(name, *_SIGNATURES[name])
