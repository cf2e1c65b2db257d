"""The files in a device's folder, beside its certificate and its journal.

data.safetensors    the samples that it trains on and is tested on
log.jsonl           one line per round: neighbours, what was sent, and measurements
history/            its models of the rounds that were measured, within a limit of size
model.safetensors   its final model
status.json         its current status
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

SAMPLES = "data.safetensors"
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


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of a device's log without those that a crash has truncated.

    Args:
        folder: The device's folder.
    """
    path = folder / LOG
    if not path.exists():
        return []
    lines = []
    for text in path.read_text(errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("round"), int):
            lines.append(line)
    return lines


def read_model(path: Path) -> dict[str, Tensor]:
    """Return a model that a device has written, as tensors by name.

    Args:
        path: The file.
    """
    from safetensors.torch import load_file

    return dict(load_file(path))
