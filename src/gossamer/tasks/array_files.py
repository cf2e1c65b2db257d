"""Data from the user's own files of arrays: .npz and .safetensors. Nothing is ever unpickled."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gossamer._core.registry import register
from gossamer.errors import DataError, InputError
from gossamer.tasks.data import Data, checked_arrays, from_arrays

MAX_BYTES = 64 << 30
"""Largest file of arrays that is read."""

_NAMES = ("x", "y", "x_test", "y_test")


@register("data", "arrays")
@dataclass(frozen=True)
class Arrays:
    """Data from an .npz or .safetensors file with the arrays x, y, x_test and y_test.

    Their types and shapes say what they are, as in `from_arrays`.

    Args:
        path: The file.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "fleet.npz")
        ...     np.savez(path, x=np.eye(3), y=[0, 1, 2], x_test=np.eye(3), y_test=[0, 1, 2])
        ...     Arrays(path).load().classes
        3
    """

    path: Path

    def load(self) -> Data:
        return _load(Path(self.path).expanduser(), from_arrays)


def load_part(path: Path) -> Data:
    """Load the samples of one device from a file as in `Arrays`, which may lack some labels.

    Args:
        path: The file.

    Raises:
        DataError: If the file is missing or damaged, or its arrays cannot be used.
    """
    return _load(path, checked_arrays)


def _load(path: Path, make: Callable[..., Data]) -> Data:
    arrays: dict[str, Any]
    if path.suffix == ".npz":
        arrays = dict(read_npz(path, _NAMES))
    elif path.suffix == ".safetensors":
        arrays = dict(_read_safetensors(path, _NAMES))
    else:
        raise InputError("path", str(path), "a file that ends in .npz or .safetensors")
    try:
        return make(**arrays, name=path.stem)
    except InputError as error:
        raise DataError(f"{path}: {error}") from error


def read_npz(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Read arrays from an .npz file. Their sizes are checked before any of them is read.

    Args:
        path: The file.
        names: Names of the arrays.

    Returns:
        The arrays by name.

    Raises:
        DataError: If the file is missing, damaged or too large, lacks an array, or holds pickled
            objects.
    """
    _check_size(path)
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {member.filename: member.file_size for member in archive.infolist()}
            _check_names(path, {file.removesuffix(".npy") for file in sizes}, names)
            if sum(sizes[f"{name}.npy"] for name in names) > MAX_BYTES:
                raise DataError(f"{path} unpacks to more than {MAX_BYTES >> 30} GiB")
            for name in names:
                with archive.open(f"{name}.npy") as stream:
                    _check_header(path, name, stream, sizes[f"{name}.npy"])
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in names}
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        ValueError,
        OSError,
        RuntimeError,
        NotImplementedError,
    ) as error:
        raise DataError(f"{path} is damaged or not an .npz file: {error}") from error


def _check_header(path: Path, name: str, stream: Any, size: int) -> None:
    """Refuse objects, and an array whose header promises another size than the file has."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
    else:
        raise DataError(f"{path}: the array {name} has an unknown format, version {version}")
    if dtype.hasobject:
        raise DataError(f"{path}: the array {name} holds Python objects; give an array of numbers")
    if stream.tell() + math.prod(shape) * dtype.itemsize != size:
        raise DataError(
            f"{path}: the array {name} is truncated: its header promises the shape {shape}"
        )


def _read_safetensors(path: Path, names: tuple[str, ...]) -> dict[str, Tensor]:
    from safetensors import SafetensorError, safe_open

    _check_size(path)
    try:
        with safe_open(path, framework="pt") as file:
            _check_names(path, set(file.keys()), names)
            return {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path} is damaged or not a .safetensors file: {error}") from error


def _check_size(path: Path) -> None:
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    if path.stat().st_size > MAX_BYTES:
        raise DataError(f"{path} is larger than {MAX_BYTES >> 30} GiB")


def _check_names(path: Path, found: set[str], names: tuple[str, ...]) -> None:
    missing = [name for name in names if name not in found]
    if missing:
        raise DataError(
            f"{path} has no array {' and no '.join(missing)}; it must hold {', '.join(names)}"
        )
