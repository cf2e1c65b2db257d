"""The state of a timeline: one list or array per quantity, with one entry per device.

Python's loops read lists faster, compiled code reads arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.errors import DataError

PREFIX = "engine/events/"  # prefix of tensors that only the events engine reads

_TYPES = {int: torch.int64, float: torch.float64}


def tensors_of(timeline: object, names: dict[str, type]) -> dict[str, Tensor]:
    """Return copies of lists or arrays of a timeline as tensors, by names that begin with PREFIX.

    Args:
        timeline: An object that has the lists as attributes whose names begin with "_".
        names: The names of the lists, and the types of their entries.
    """
    found = {}
    for name, kind in names.items():
        found[PREFIX + name] = torch.tensor(getattr(timeline, f"_{name}"), dtype=_TYPES[kind])
    return found


def restore(timeline: object, names: dict[str, type], tensors: dict[str, Tensor]) -> None:
    """Set lists or arrays of a timeline to what a snapshot holds.

    Args:
        timeline: An object that has the lists as attributes whose names begin with "_".
        names: The names of the lists, and the types of their entries.
        tensors: What `tensors_of` returned; others are ignored.

    Raises:
        DataError: If one is missing or has another length: the snapshot is of another engine.
    """
    for name in names:
        devices = len(getattr(timeline, f"_{name}"))
        found = tensors.get(PREFIX + name)
        if found is None or found.shape != (devices,):
            raise DataError(
                "the checkpoint is not of the events engine, or of another kind of method: it does "
                "not say what the devices are doing; resume it as it was written"
            )
        as_array = isinstance(getattr(timeline, f"_{name}"), np.ndarray)
        setattr(timeline, f"_{name}", found.numpy().copy() if as_array else found.tolist())


def use_arrays(timeline: object, names: dict[str, type]) -> None:
    """Turn lists of a timeline into arrays.

    Args:
        timeline: An object that has the lists as attributes whose names begin with "_".
        names: The names of the lists, and the types of their entries.
    """
    for name, kind in names.items():
        setattr(timeline, f"_{name}", np.array(getattr(timeline, f"_{name}"), dtype=kind))


def arrays_of(timeline: object, names: dict[str, type]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a timeline by name, not copied.

    Args:
        timeline: An object that has the arrays as attributes whose names begin with "_".
        names: Their names.
    """
    return {name: getattr(timeline, f"_{name}") for name in names}
