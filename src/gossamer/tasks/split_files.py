"""Read the split of the samples from a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from gossamer._core.files import os_errors
from gossamer._core.registry import register
from gossamer.errors import DataError, InputError
from gossamer.tasks.array_files import read_npz
from gossamer.tasks.split_rules import MAX_HELD, SplitRule
from gossamer.tasks.splits import Split, checked_split, from_lists


@register("split", "lists")
@dataclass(frozen=True)
class Lists(SplitRule):
    """The user's own split, from a file. Devices may share samples.

    Args:
        path: A JSON file with one list of sample numbers per device; or an .npz file with the
            arrays index and offsets, as in `Split`.

    Example:
        >>> import numpy as np
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "split.json")
        ...     count = path.write_text("[[0, 1], [2]]")
        ...     Lists(path).make(np.zeros(3), devices=2, seed=0).sizes.tolist()
        [2, 1]
    """

    path: Path

    def make(self, y: NDArray[Any], devices: int, seed: int) -> Split:
        path = Path(self.path).expanduser()
        try:
            split = self._read(path, len(y))
        except InputError as error:
            raise DataError(f"{path}: {error}") from error
        if split.devices != devices:
            raise DataError(f"{path} is for {split.devices} devices, not {devices}")
        return split

    def _read(self, path: Path, samples: int) -> Split:
        if path.suffix == ".npz":
            return _read_index(path, samples)
        with os_errors("read", path):
            size = path.stat().st_size
        if size > MAX_HELD:
            raise DataError(
                f"{path} is larger than {MAX_HELD >> 30} GiB; "
                "give an .npz file with index and offsets"
            )
        try:
            with os_errors("read", path):
                lists = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path} is not JSON: {error}") from error
        if not isinstance(lists, list) or not all(isinstance(part, list) for part in lists):
            raise DataError(
                f"{path} must hold a list of lists of sample numbers, one list for each device"
            )
        return from_lists(lists, samples)


def _read_index(path: Path, samples: int) -> Split:
    """Read a split from an .npz file with index and offsets."""
    arrays = read_npz(path, ("index", "offsets"))
    for array in arrays.values():
        if array.ndim != 1 or array.dtype.kind not in "iu" or len(array) == 0:
            raise DataError(f"{path}: index and offsets must be lists of whole numbers")
    index = arrays["index"]
    offsets = arrays["offsets"]
    rises = len(offsets) > 1 and bool((offsets[1:] > offsets[:-1]).all())
    if not rises or offsets[0] != 0 or offsets[-1] != len(index):
        raise DataError(
            f"{path}: offsets must rise from 0 to the length of index, {len(index)}, "
            "by at least 1 per device"
        )
    return checked_split(index, offsets, samples)
