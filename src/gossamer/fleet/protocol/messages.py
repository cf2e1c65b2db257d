"""The messages between devices."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from gossamer.errors import InputError

RUN_BYTES = 16
MAX_APPLIED = 64  # exchanges listed in one message
MAX_DIMENSIONS = 4
DTYPE_CODES = {torch.float32: 1, torch.bfloat16: 2, torch.float64: 3}
# A vector is read as integers of the same width, since NumPy has no bfloat16.
_BITS = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float64: torch.int64}
_FIELD_BITS = {"sender": 32, "round": 32, "part": 16, "degree": 32, "checksum": 32}

# (round, part): part numbers the exchanges of a round from 0. In meetings of two, round is the
# number of the meeting on its link.
ExchangeId = tuple[int, int]


class Kind(IntEnum):
    """The kind of a message."""

    MODEL = 1
    READY = 2
    ASK = 3
    START = 4
    BYE = 5
    FREE = 6
    PROPOSE = 7
    ACCEPT = 8
    BUSY = 9

    @property
    def has_vector(self) -> bool:
        """True if a message of this kind carries a vector."""
        return self in (Kind.MODEL, Kind.START)

    @property
    def has_checksum(self) -> bool:
        """True if a message of this kind carries the checksum of a vector."""
        return self.has_vector or self == Kind.READY

    @property
    def has_applied(self) -> bool:
        """True if a message of this kind lists the exchanges that its sender has applied."""
        return self in (Kind.MODEL, Kind.BYE, Kind.FREE)


MEETING_KINDS = frozenset(Kind)
SLOT_KINDS = MEETING_KINDS - {Kind.FREE, Kind.PROPOSE, Kind.ACCEPT, Kind.BUSY}


@dataclass(frozen=True, eq=False)
class Message:
    """One message.

    The checksum of a vector is computed here, once: `replace(message, applied=…)` for the next
    neighbour keeps it. Create a new message for another vector, or for one changed in place.

    Args:
        kind: Its kind.
        run: The run that it belongs to, 16 bytes.
        sender: Number of the sending device.
        round: Round of the exchange; in meetings of two the number of the meeting on its link.
        part: Number of the exchange in its round.
        degree: Number of neighbours of the sender in this round; in MODEL only.
        applied: The last exchanges that the sender has applied on this link, ascending.
        vector: The vector; its dtype is the one on the wire.
        checksum: CRC-32 of the vector; in READY that of the vector received.

    Raises:
        InputError: If a field is out of range or does not belong to this kind.

    Example:
        >>> x = torch.tensor([0.5, -2.0])
        >>> model = Message(Kind.MODEL, bytes(16), sender=3, round=7, degree=2, vector=x)
        >>> ready = Message(Kind.READY, bytes(16), sender=4, round=7, checksum=model.checksum)
    """

    kind: Kind
    run: bytes
    sender: int
    round: int
    part: int = 0
    degree: int = 0
    applied: tuple[ExchangeId, ...] = ()
    vector: Tensor | None = None
    checksum: int = 0

    def __post_init__(self) -> None:
        if len(self.run) != RUN_BYTES:
            raise InputError("run", self.run, f"{RUN_BYTES} bytes")
        for name, bits in _FIELD_BITS.items():
            value = getattr(self, name)
            if not 0 <= value < 1 << bits:
                raise InputError(name, value, f"a whole number from 0 to 2^{bits} - 1")
        if (self.degree > 0) != (self.kind == Kind.MODEL):
            raise InputError("degree", self.degree, "at least 1 in MODEL, 0 in others")
        if self.checksum and not self.kind.has_checksum:
            raise InputError("checksum", self.checksum, f"0 in {self.kind.name}")
        if self.applied and not self.kind.has_applied:
            raise InputError("applied", self.applied, f"none in {self.kind.name}")
        if not _is_list_of_exchanges(self.applied):
            raise InputError(
                "applied", self.applied, f"at most {MAX_APPLIED} different (round, part), ascending"
            )
        if (self.vector is not None) != self.kind.has_vector:
            raise InputError("vector", None, f"one in MODEL and START, none in {self.kind.name}")
        if self.vector is not None:
            check_dtype(self.vector.dtype)
            check_shape(tuple(self.vector.shape))
            if not self.checksum:
                object.__setattr__(self, "checksum", zlib.crc32(vector_bytes(self.vector)))


def _is_list_of_exchanges(applied: tuple[ExchangeId, ...]) -> bool:
    ascending = all(a < b for a, b in pairwise(applied))
    in_range = all(0 <= t < 1 << 32 and 0 <= part < 1 << 16 for t, part in applied)
    return ascending and in_range and len(applied) <= MAX_APPLIED


def check_dtype(dtype: torch.dtype) -> None:
    """Raise InputError if vectors of this dtype cannot be sent.

    Args:
        dtype: The dtype.
    """
    if dtype not in DTYPE_CODES:
        raise InputError("dtype", dtype, "torch.float32, torch.bfloat16 or torch.float64")


def check_shape(shape: tuple[int, ...]) -> None:
    """Raise InputError if vectors of this shape cannot be sent.

    Args:
        shape: The shape.
    """
    if len(shape) > MAX_DIMENSIONS or not all(0 < size < 1 << 32 for size in shape):
        raise InputError("shape", shape, f"at most {MAX_DIMENSIONS} dimensions of size 1 or more")


def vector_bytes(vector: Tensor) -> memoryview:
    """Return the elements as bytes, little-endian; without a copy if they are so in memory.

    Args:
        vector: A tensor of any layout.
    """
    bits = vector.detach().cpu().contiguous().reshape(-1).view(_BITS[vector.dtype]).numpy()
    return bits.astype(f"<i{bits.itemsize}", copy=False).view(np.uint8).data


def vector_from_bytes(data: memoryview, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return the tensor of these bytes; without a copy if the buffer is writable.

    Args:
        data: The elements, little-endian. A writable buffer belongs to the caller alone.
        shape: Shape of the tensor.
        dtype: Its dtype.
    """
    bits = np.frombuffer(data, f"<i{dtype.itemsize}").astype(
        f"=i{dtype.itemsize}", copy=data.readonly
    )
    return torch.from_numpy(bits).view(dtype).reshape(shape)
