"""The last good state of a device, to which it falls back if its model diverges."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import torch

from gossamer._core.disk import Disk
from gossamer._core.files import PRIVATE_MODE, write_atomically
from gossamer.algorithms import State
from gossamer.fleet.protocol.records import read_records, write_record

GOOD_FILE = "good"
_EVERY = 20  # rounds between two states that are kept
# Growth of the largest element in a period above which a state is not yet good.
_GROWTH = 10.0
_MAX_PERIODS = 30  # periods for which growth is counted
_SMALL = 1.0  # largest element up to which growth is not looked at
_MAX_FALLS = 5  # times that a device falls back without a good state in between


class Recovery:
    """Keep a good state every few rounds, on disk.

    Args:
        folder: The device's folder.
        disk: Its disk.
        rounds: Rounds of the run; a short run keeps states more often.

    Example:
        recovery = Recovery(folder, SYSTEM_DISK, rounds=1000)
        recovery.keep(t, state)
        earlier = recovery.fall_back(t)
    """

    def __init__(self, folder: Path, disk: Disk, rounds: int) -> None:
        self._path = folder / GOOD_FILE
        self._disk = disk
        self._every = max(1, min(_EVERY, rounds // 10))
        self._kept: int | None = None  # round of the last state kept
        self._size = 0.0  # magnitude of the largest element of the last state kept
        self._times = 0  # fallen back since then
        for header, _ in read_records(self._path, disk):
            self._kept = header["round"] - 1
            self._size = header["size"]

    def keep(self, t: int, state: State) -> None:
        """Keep a state if one is due and it looks good.

        Args:
            t: The round.
            state: The state after it, which is finite.
        """
        size = 0.0
        if self._kept is not None:
            periods = abs(t - self._kept) // self._every  # a device may go back to earlier rounds
            if periods < 1:
                return
            limit = max(_SMALL, _GROWTH ** min(periods, _MAX_PERIODS) * self._size)
            size = _largest_element(state)
            if size > limit:
                return

        size = size or _largest_element(state)

        def write(file: BinaryIO) -> None:
            write_record(file, {"round": t + 1, "size": size}, state, {})

        write_atomically(self._path, write, mode=PRIVATE_MODE, sync=False, disk=self._disk)
        self._kept = t
        self._size = size
        self._times = 0

    def fall_back(self, t: int) -> tuple[int, State] | None:
        """Return the last good state and its round; None if there is none, or after too many.

        Args:
            t: The round in which the model diverged.
        """
        self._times += 1
        records = list(read_records(self._path, self._disk))
        if len(records) != 1 or self._times > _MAX_FALLS:
            return None
        header, state = records[0]
        self._size = header["size"]
        self._kept = t  # the next one only when this has lasted
        return header["round"], state


def is_finite(state: State) -> bool:
    """Return True if all elements are finite.

    Args:
        state: The state.
    """
    return all(bool(torch.isfinite(x).all()) for x in state.values() if x.is_floating_point())


def _largest_element(state: State) -> float:
    sizes = [float(x.abs().max()) for x in state.values() if x.is_floating_point() and x.numel()]
    return max(sizes, default=0.0)
