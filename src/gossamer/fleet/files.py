"""The files in a device's folder, beside its certificate and its journal.

data.safetensors    the samples that it trains on and is tested on; or data.npz, or a table, as
                    data.csv or data.parquet
columns.json        how a table becomes samples, as on all devices
log.jsonl           one line per round: neighbours, what was sent, and measurements
history/            its models of the newest rounds that were measured, within a limit of size
model.safetensors   its current model, for other programs; at the end its final model
status.json         its current status
good                a recent state, for a device that diverges: see `recovery`

The folder is private. A device's own programs of other users may read model.safetensors once its
owner has made the folder passable (chmod 711).
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer._core.disk import SYSTEM_DISK, Disk
from gossamer._core.files import PRIVATE_FOLDER_MODE, PRIVATE_MODE, PUBLIC_MODE, os_errors
from gossamer.fleet.keys import KEY

if TYPE_CHECKING:
    from torch import Tensor

SAMPLES = "data.safetensors"
TABLE_FORMAT = "columns.json"
SAMPLES_NUMPY = "data.npz"  # the same, as NumPy writes it
LOG = "log.jsonl"
STATUS = "status.json"
MODEL = "model.safetensors"
HISTORY = "history"


def history_file(folder: Path, t: int) -> Path:
    """Return the file of a device's model after t rounds.

    Args:
        folder: The device's folder.
        t: Number of rounds.
    """
    return folder / HISTORY / f"{t:06}.safetensors"


def make_private(folder: Path) -> None:
    """Let only the owner of a device's folder read it: files may have been copied with other modes.

    A key that others can read is left as it is: it is refused, since others may have a copy.

    Args:
        folder: The device's folder.
    """
    with suppress(OSError):  # the folder of another user, which that user has opened
        folder.chmod(PRIVATE_FOLDER_MODE)
        for path in folder.iterdir():
            if path.is_file() and path.name not in (MODEL, STATUS, LOG, KEY):
                path.chmod(PRIVATE_MODE)


def read_log(folder: Path, disk: Disk = SYSTEM_DISK) -> list[dict[str, Any]]:
    """Return the lines of a device's log without those that a crash has truncated.

    Args:
        folder: The device's folder.
        disk: Where the folder is.

    Raises:
        DataError: If the file cannot be read.
    """
    path = folder / LOG
    if not disk.exists(path):
        return []
    lines = []
    with os_errors("read", path):
        content = disk.read(path)
    for text in content.decode(errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("round"), int):
            lines.append(line)
    return lines


def end_torn_line(folder: Path, disk: Disk = SYSTEM_DISK) -> None:
    """End a line that a crash has truncated, so that the next one is not lost with it.

    Args:
        folder: The device's folder.
        disk: Where the folder is.
    """
    path = folder / LOG
    if not disk.exists(path):
        return
    with os_errors("write", path):
        if not disk.read(path).endswith(b"\n"):
            with disk.append(path, PUBLIC_MODE) as file:
                file.write(b"\n")


def read_model(path: Path) -> dict[str, Tensor]:
    """Return a model that a device has written, as tensors by name.

    Args:
        path: The file.
    """
    from safetensors.torch import load_file

    return dict(load_file(path))
