"""Read what came back from a device. It may come from anybody, so everything is checked."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pydantic
import torch

from gossamer.errors import DataError
from gossamer.fleet import files
from gossamer.fleet.settings import Device
from gossamer.fleet.status import parse_status

_LARGEST_LOG = 1 << 30  # bytes
_LARGEST_STATUS = 1 << 16
_MAX_SECONDS = 100 * 86_400.0  # duration of a run without a clock

_Count = Annotated[int, pydantic.Field(ge=0, lt=1 << 53)]
_Devices = Annotated[list[_Count], pydantic.Field(max_length=1 << 16)]
_Signature = tuple[tuple[str, tuple[int, ...], str], ...]


@dataclass(frozen=True)
class _Line:
    """A line of a device's log, with the names that it has in JSON."""

    round: _Count
    near: _Devices
    met: _Devices
    messages: _Count
    bytes: _Count
    seconds: Annotated[float, pydantic.Field(ge=0, le=_MAX_SECONDS)] = 0.0
    late: bool = False
    loss: float = 0.0
    metrics: Annotated[dict[str, float], pydantic.Field(max_length=100)] | None = None


_LINE = pydantic.TypeAdapter(_Line)


@dataclass(frozen=True)
class Received:
    """The log and the counts of a device."""

    log: list[dict[str, Any]]
    counts: dict[str, int]


def receive(device: Device, rounds: int) -> Received | None:
    """Return what a device has left in its folder; None if there are no results.

    Args:
        device: Its settings.
        rounds: Rounds of the study.

    Raises:
        DataError: If a file is not what a device writes.
    """
    folder = device.folder
    if not (folder / files.LOG).exists() or not (folder / files.MODEL).exists():
        return None
    _check_is_file(folder / files.LOG, _LARGEST_LOG)
    log = []
    for line in files.read_log(folder):
        _check_line(line, device, rounds)
        log.append(line)
    if not log:
        return None
    _check_model(folder / files.MODEL)
    for line in log:
        path = files.history_file(folder, line["round"])
        if "loss" in line and (path.exists() or path.is_symlink()):
            _check_model(path)
    return Received(log, _counts(device))


def unlike_the_others(devices: Iterable[Device], logs: dict[int, list[dict[str, Any]]]) -> set[int]:
    """Return the devices whose models have other names or shapes than those of most.

    Args:
        devices: The devices.
        logs: Their logs.
    """
    signatures: dict[int, set[_Signature]] = {}
    for device in devices:
        paths = [device.folder / files.MODEL]
        for line in logs[device.device]:
            path = files.history_file(device.folder, line["round"])
            if "loss" in line and path.exists():
                paths.append(path)
        signatures[device.device] = {_signature(path) for path in paths}
    votes: Counter[_Signature] = Counter()
    for found in signatures.values():
        votes.update(found)
    if not votes:
        return set()
    common = votes.most_common(1)[0][0]
    return {i for i, found in signatures.items() if found != {common}}


def _check_is_file(path: Path, largest: int) -> None:
    """Refuse links, pipes and devices: reading one may never end, or read another file."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise DataError(f"{path} is not an ordinary file")
    if found.st_size > largest:
        raise DataError(f"{path} has {found.st_size} bytes: no device writes as many")


def _check_line(line: dict[str, Any], device: Device, rounds: int) -> None:
    """Raise DataError if a line of a log is not what a device writes."""
    path = device.folder / files.LOG
    try:
        parsed = _LINE.validate_python(line, strict=False)
    except ValueError:
        raise DataError(f"{path} has a line that no device writes") from None
    if parsed.round > rounds:
        raise DataError(f"{path} has round {parsed.round} of {rounds}")
    if any(j >= len(device.names) for j in (*parsed.near, *parsed.met)):
        raise DataError(f"{path} names a device that the fleet does not have")
    if device.fleet.pace == "contacts" and "seconds" not in line:
        raise DataError(f"{path} has a line that no device writes")


def _check_model(path: Path) -> None:
    """Raise DataError if a model cannot be read or is not finite."""
    _check_is_file(path, 1 << 40)  # safetensors checks sizes before it reads
    try:
        tensors = files.read_model(path)
    except Exception as error:  # what safetensors raises is not documented
        raise DataError(f"{path} is not a model: {type(error).__name__}") from None
    for name, x in tensors.items():
        if x.is_floating_point() and not bool(torch.isfinite(x).all()):
            raise DataError(f"{path} has a value that is not finite, in {name!r}")


def _signature(path: Path) -> _Signature:
    """Return names, shapes and dtypes of a model."""
    found = []
    for name, x in sorted(files.read_model(path).items()):
        found.append((name, tuple(x.shape), str(x.dtype)))
    return tuple(found)


def _counts(device: Device) -> dict[str, int]:
    """Return the counts of a status; none if it cannot be read."""
    path = device.folder / files.STATUS
    if not path.exists():
        return {}
    _check_is_file(path, _LARGEST_STATUS)
    status = parse_status(path.read_bytes(), len(device.names), now=1e11)
    return dict(status.counts)
