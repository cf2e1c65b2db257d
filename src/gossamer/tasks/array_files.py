"""Data from files of arrays: .npz, .npy and .safetensors. Nothing is ever unpickled."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer._core.registry import register
from gossamer.errors import DataError, InputError
from gossamer.tasks.data import Data, checked_arrays, from_arrays

MAX_BYTES = 64 << 30
"""Largest file of arrays that is read."""

_NAMES = ("x", "y", "x_test", "y_test")
_PICKLES = (".pt", ".pth", ".pkl", ".pickle")


@register("data", "arrays")
@dataclass(frozen=True)
class Arrays:
    """Data from files with the arrays x, y, x_test and y_test: one file, or one file per device.

    Their types and shapes say what they are, as in `from_arrays`. Of a folder, every .npz or
    .safetensors file holds the samples of one device, whose name is that of the file, and a study
    needs no split; or the folder holds x.npy, y.npy, x_test.npy and y_test.npy.

    Args:
        path: A file that ends in .npz or .safetensors, or a folder.
        pooled: Do not keep the devices apart: a split rule divides the samples.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "fleet.npz")
        ...     np.savez(path, x=np.eye(3), y=[0, 1, 2], x_test=np.eye(3), y_test=[0, 1, 2])
        ...     Arrays(path).load().classes
        3
    """

    path: Path
    pooled: bool = False

    @property
    def brings_devices(self) -> bool:
        """True if the files say which device holds which samples."""
        folder = self._expanded
        return not self.pooled and folder.is_dir() and not _has_npy(folder)

    @property
    def _expanded(self) -> Path:
        return Path(self.path).expanduser()

    def load(self) -> Data:
        path = self._expanded
        if not path.is_dir():
            return _load(path, from_arrays)
        if _has_npy(path):
            return _made(path, from_arrays, _read_npy(path, _NAMES))
        return self._load_folder(path)

    def _load_folder(self, folder: Path) -> Data:
        """Return the samples of all files in a folder, one file per device."""
        files = [path for path in sorted(folder.iterdir()) if path.suffix in _READERS]
        if not files:
            raise DataError(f"{folder} holds no .npz or .safetensors file, and no x.npy")
        parts = []
        names = []
        for path in files:
            parts.append(_load(path, checked_arrays))
            names += [path.stem] * parts[-1].samples
        _check_devices(files)
        test = parts
        if all(_same_test(parts[0], part) for part in parts):
            test = parts[:1]
        arrays = {
            "x": _joined(files, parts, "x"),
            "y": _joined(files, parts, "y"),
            "x_test": _joined(files, test, "x_test"),
            "y_test": _joined(files, test, "y_test"),
        }
        if not self.pooled:
            arrays["devices"] = names
        return _made(folder, from_arrays, arrays)


def _check_devices(files: list[Path]) -> None:
    names = [path.stem for path in files]
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"two files are of the device {name!r}; give one file per device")


def _same_test(one: Data, other: Data) -> bool:
    return torch.equal(one.x_test, other.x_test) and torch.equal(one.y_test, other.y_test)


def _joined(files: list[Path], parts: list[Data], name: str) -> Any:
    """Return the arrays of all files as one."""
    first = getattr(parts[0], name)
    arrays = []
    for path, part in zip(files, parts, strict=False):
        array = getattr(part, name)
        if array.shape[1:] != first.shape[1:]:
            raise DataError(
                f"{path}: {name} has samples of shape {list(array.shape[1:])}, those of "
                f"{files[0]} have {list(first.shape[1:])}"
            )
        arrays.append(array)
    if len({array.dtype for array in arrays}) > 1:
        arrays = [array.float() for array in arrays]
    return torch.cat(arrays)


def load_part(path: Path) -> Data:
    """Load the samples of one device from a file as in `Arrays`, which may lack some labels.

    Args:
        path: The file.

    Raises:
        DataError: If the file is missing or damaged, or its arrays cannot be used.
    """
    return _load(path, checked_arrays)


def _load(path: Path, make: Callable[..., Data]) -> Data:
    if path.suffix in _PICKLES:
        accepted = (
            "a file that ends in .npz or .safetensors: a file of torch.save can run code when it "
            "is read; write the tensors by safetensors.torch.save_file"
        )
        raise InputError("path", str(path), accepted)
    if path.suffix not in _READERS:
        accepted = "a file that ends in .npz or .safetensors, or a folder"
        raise InputError("path", str(path), accepted)
    return _made(path, make, _READERS[path.suffix](path, _NAMES))


def _made(path: Path, make: Callable[..., Data], arrays: dict[str, Any]) -> Data:
    try:
        return make(**arrays, name=path.stem)
    except InputError as error:
        raise DataError(f"{path}: {error}") from error


def _has_npy(folder: Path) -> bool:
    return (folder / "x.npy").is_file()


def _read_npy(folder: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Read arrays from a folder of .npy files."""
    _check_names(folder, {path.stem for path in folder.glob("*.npy")}, names)
    arrays = {}
    for name in names:
        path = folder / f"{name}.npy"
        _check_size(path)
        try:
            with path.open("rb") as stream:
                _check_header(path, name, stream, path.stat().st_size)
            arrays[name] = np.load(path, allow_pickle=False)
        except (EOFError, ValueError, OSError) as error:
            raise DataError(f"{path} is damaged or not an .npy file: {error}") from error
    return arrays


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


_READERS: dict[str, Callable[[Path, tuple[str, ...]], dict[str, Any]]] = {
    ".npz": read_npz,
    ".safetensors": _read_safetensors,
}
