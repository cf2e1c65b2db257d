"""The samples of one device: a file in its folder, which may grow while the device runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gossamer.errors import DataError
from gossamer.fleet import files
from gossamer.fleet.settings import Device
from gossamer.tasks import table_files
from gossamer.tasks.array_files import load_part
from gossamer.tasks.data import Data
from gossamer.tasks.table_format import read_format


def read_samples(device: Device) -> Data:
    """Return the samples of a device, if they fit those of the fleet.

    Args:
        device: Settings of the device.

    Raises:
        DataError: If they are missing, damaged, or do not fit.
    """
    path = samples_file(device.folder)
    if path.name.endswith(table_files.ENDINGS):
        data = read_format(_format_file(device.folder, path)).read(path)
    else:
        data = load_part(path)
    if device.targets == "values" and data.targets == "multi-label":
        # The values of this device happen to be 0 and 1.
        data = replace(data, y=data.y.float(), y_test=data.y_test.float())
    if device.shape and data.shape != device.shape:
        raise DataError(
            f"{path} has samples of shape {data.shape}; those of the fleet have {device.shape}"
        )
    if device.classes is None:
        if data.classes is not None:
            raise DataError(f"{path} has labels as y; the fleet has other targets")
        if device.targets and data.targets != device.targets:
            raise DataError(f"{path} has {data.targets} as y; the fleet has {device.targets}")
        return data
    if data.classes is None:
        raise DataError(f"{path} has {data.targets} as y; the fleet has labels")
    if data.classes > device.classes:
        raise DataError(
            f"{path} has labels up to {data.classes - 1};"
            f" those of the fleet are 0 to {device.classes - 1}"
        )
    return replace(data, classes=device.classes)


def samples_file(folder: Path) -> Path:
    """Return the file with the samples of a device.

    Args:
        folder: The device's folder.

    Raises:
        DataError: If there is none, or more than one.
    """
    names = [files.SAMPLES, files.SAMPLES_NUMPY]
    names += [f"data{ending}" for ending in table_files.ENDINGS]
    found = [name for name in names if (folder / name).exists()]
    if not found:
        raise DataError(
            f"{folder / files.SAMPLES} is missing: put the device's own x, y, x_test and y_test"
            f" there; or a table, in {', '.join(names[2:-1])} or {names[-1]}"
        )
    if len(found) > 1:
        raise DataError(f"{folder} has {' and '.join(found)}: keep one of them")
    return folder / found[0]


class GrowingSamples:
    """Tells when the samples of a device have changed.

    Args:
        device: Settings of the device.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._used = self._stamp()

    def read_if_changed(self) -> Data | None:
        """Return the samples if their file has changed since the last call; else None.

        Raises:
            DataError: If they cannot be used. The next call tries again only if they change again.
        """
        stamp = self._stamp()
        if stamp is None or stamp == self._used:
            return None
        self._used = stamp
        return read_samples(self._device)

    def _stamp(self) -> tuple[str, int, int, int] | None:
        try:
            path = samples_file(self._device.folder)
            info = path.stat()
        except (DataError, OSError):
            return None  # the file is being replaced
        return path.name, info.st_mtime_ns, info.st_size, info.st_ino


def _format_file(folder: Path, table: Path) -> Path:
    path = folder / files.TABLE_FORMAT
    if not path.exists():
        raise DataError(
            f"{table} is a table, and {path} is missing, which has the numbers of labels and the"
            " scale of inputs of all devices: `gossamer fleet init` writes it for data of the"
            ' kind "table"'
        )
    return path
