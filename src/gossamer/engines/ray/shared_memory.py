"""Memory that two processes of one machine map, for messages that are written once."""

from __future__ import annotations

import math
import mmap
import os
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

_DIRECTORY = Path("/dev/shm")
_SLOTS = 2  # double buffering: the receiver reads one slot while the sender writes the other


def machine_id() -> str:
    """Return an identifier that is equal for processes that can share memory, or "" if none can."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}-{_DIRECTORY.stat().st_dev}"
    except OSError:
        return ""


def buffer_path(group: str, sender: int, receiver: int, generation: int) -> Path:
    """Return the path of a shared buffer.

    Args:
        group: Name of the process group.
        sender: Number of the process that writes.
        receiver: Number of the process that reads.
        generation: Number of the buffer, counted per pair of processes.

    Returns:
        A path in the memory file system.
    """
    return _DIRECTORY / f"{group}-{sender}-{receiver}-{generation}"


def remove_buffers(group: str) -> None:
    """Remove the shared buffers that a killed process group left on this machine.

    Args:
        group: Name of the process group.
    """
    for path in _DIRECTORY.glob(f"{group}-*"):
        with suppress(OSError):
            path.unlink()


class SharedBuffer:
    """A memory-mapped file with two slots for messages.

    The sender creates the file; the receiver opens it and removes its name, so that the memory is
    freed when both processes have ended.
    """

    def __init__(self, descriptor: int, generation: int) -> None:
        try:
            self._memory = mmap.mmap(descriptor, 0)
        finally:
            os.close(descriptor)
        self.slot_bytes = len(self._memory) // _SLOTS
        self.generation = generation

    @classmethod
    def create(cls, path: Path, slot_bytes: int, generation: int) -> SharedBuffer:
        """Create a buffer.

        Args:
            path: Where. The file must not exist.
            slot_bytes: Least size of a slot.
            generation: Number of the buffer.

        Returns:
            The buffer.

        Raises:
            OSError: If there is not enough memory.
        """
        pages = -(-max(slot_bytes, 1) // mmap.PAGESIZE)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            # Reserve the memory now: a page fault without memory would kill the process later.
            os.posix_fallocate(descriptor, 0, _SLOTS * pages * mmap.PAGESIZE)
        except OSError:
            os.close(descriptor)
            path.unlink()
            raise
        return cls(descriptor, generation)

    @classmethod
    def open(cls, path: Path, generation: int) -> SharedBuffer:
        """Open a buffer that another process created, and remove its name.

        Args:
            path: Where.
            generation: Number of the buffer.

        Returns:
            The buffer.
        """
        buffer = cls(os.open(path, os.O_RDWR), generation)
        path.unlink()
        return buffer

    def rows(self, message: int, count: int, like: Tensor) -> Tensor:
        """Return the slot of a message as a tensor that shares its memory.

        Args:
            message: Number of the message; consecutive messages alternate between the slots.
            count: Number of rows.
            like: A tensor with the type and the row shape of the result.

        Returns:
            A tensor [count, ...].
        """
        offset = message % _SLOTS * self.slot_bytes
        elements = count * math.prod(like.shape[1:])
        flat = torch.frombuffer(self._memory, dtype=like.dtype, count=elements, offset=offset)
        return flat.view(count, *like.shape[1:])
