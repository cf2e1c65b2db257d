"""What devices say to each other, byte by byte.

A message is a header of 72 bytes, a short list of exchanges, and a vector. All numbers are little-endian, unsigned:

    offset  bytes  field
    0       4      magic: "GSMR"
    4       2      version of this layout: 1
    6       1      kind: 1 MODEL, 2 READY, 3 ASK, 4 START, 5 BYE
    7       1      type of the vector's numbers: 0 no vector, 1 float32, 2 bfloat16, 3 float64
    8       16     run: which run this belongs to
    24      4      sender: the device's number
    28      4      round
    32      2      part: which mix of the round, from 0
    34      1      a: how many exchanges are listed, at most 64
    35      1      d: dimensions of the vector, at most 4
    36      4      degree: how many neighbours the sender has in this round
    40      16     four sizes, those beyond d are 0: the shape
    56      8      v: bytes of the vector
    64      4      checksum of the vector (CRC-32); in READY that of the vector which is held
    68      4      checksum of bytes 0 to 67 and of the list (CRC-32)
    72      8·a    applied: round (4 bytes) and part (4 bytes) of each, ascending
    72+8a   v      the vector's numbers as they are in memory, last dimension fastest
                   and there the message ends

What a kind does not carry is 0. So every message has one form only: what `unpack` accepts, `pack` makes again.

    kind   carries                      says
    MODEL  degree, applied, vector      my vector of this exchange, and which exchanges with you I have applied
    READY  checksum                     I hold your vector of this exchange, on disk
    ASK                                 I am new: give me a model to start from
    START  vector                       a model to start from; it is in no exchange
    BYE    applied                      I leave; nothing follows

The two checksums are apart so that a vector for several neighbours is read once. They find accidents, not forgers: whom a
message comes from is what TLS knows.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gossamer._core import checks
from gossamer.errors import GossamerError, InputError

MAGIC, VERSION = b"GSMR", 1
MAX_APPLIED, MAX_DIMENSIONS, RUN_BYTES = 64, 4, 16
CODES = {torch.float32: 1, torch.bfloat16: 2, torch.float64: 3}

_HEADER = struct.Struct("<4sHBB16sIIHBBI4IQI")  # all but its own checksum
_CHECKSUM = struct.Struct("<I")
_EXCHANGE = struct.Struct("<II")
HEADER_BYTES = _HEADER.size + _CHECKSUM.size
_BITS = {
    torch.float32: torch.int32,
    torch.bfloat16: torch.int16,
    torch.float64: torch.int64,
}  # NumPy has no bfloat16

Reason = Literal[
    "length",  # cut short, or longer than it says
    "magic",
    "version",
    "checksum",
    "run",
    "sender",
    "kind",
    "fields",  # what this kind does not carry, or a number that it cannot have
    "size",  # a vector beyond the largest
    "part",
    "dtype",
    "shape",
    "nan",
    "infinite",
    "large",  # a value beyond the bound
]


class Kind(IntEnum):
    """What a message says."""

    MODEL = 1
    READY = 2
    ASK = 3
    START = 4
    BYE = 5


_WITH_VECTOR = {Kind.MODEL, Kind.START}
_WITH_CHECKSUM = _WITH_VECTOR | {Kind.READY}
_WITH_APPLIED = {Kind.MODEL, Kind.BYE}


class Refused(GossamerError):
    """A message that is not taken: a `reason` to count, and a sentence to read."""

    def __init__(self, reason: Reason, sentence: str) -> None:
        super().__init__(reason, sentence)
        self.reason: Reason = reason
        self.sentence = sentence

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True, eq=False)
class Message:
    """One message. The vector's type is what goes over the wire: `x.bfloat16()` halves the bytes of float32.

    The checksum of a vector is worked out here, once: `replace(message, applied=…)` for the next neighbour keeps it, and for
    another vector, or one that was changed in place, make a new message.

    >>> hello = Message(Kind.MODEL, bytes(16), sender=3, round=7, degree=2, vector=torch.tensor([0.5, -2.0]))
    >>> held = Message(Kind.READY, bytes(16), sender=4, round=7, checksum=hello.checksum)
    >>> len(pack(hello)), len(pack(held))
    (80, 72)
    """

    kind: Kind
    run: bytes
    sender: int
    round: int
    part: int = 0
    degree: int = 0
    applied: tuple[
        tuple[int, int], ...
    ] = ()  # (round, part) of the last exchanges that the sender applied on this link
    vector: Tensor | None = None
    checksum: int = 0

    def __post_init__(self) -> None:
        if len(self.run) != RUN_BYTES:
            raise InputError("run", self.run, f"{RUN_BYTES} bytes")
        for name, bits in (
            ("sender", 32),
            ("round", 32),
            ("part", 16),
            ("degree", 32),
            ("checksum", 32),
        ):
            value = getattr(self, name)
            if not 0 <= value < 1 << bits:
                raise InputError(name, value, f"a whole number from 0 to 2^{bits} - 1")
        if (self.degree > 0) != (self.kind == Kind.MODEL):
            raise InputError("degree", self.degree, "at least 1 in MODEL, 0 in others")
        if self.checksum and self.kind not in _WITH_CHECKSUM:
            raise InputError("checksum", self.checksum, f"0 in {self.kind.name}")
        if self.applied and self.kind not in _WITH_APPLIED:
            raise InputError("applied", self.applied, f"none in {self.kind.name}")
        ascending = all(a < b for a, b in pairwise(self.applied))
        if (
            not ascending
            or len(self.applied) > MAX_APPLIED
            or not all(_is_exchange(*pair) for pair in self.applied)
        ):
            raise InputError(
                "applied", self.applied, f"at most {MAX_APPLIED} different (round, part), ascending"
            )
        if (self.vector is not None) != (self.kind in _WITH_VECTOR):
            raise InputError("vector", None, f"one in MODEL and START, none in {self.kind.name}")
        if self.vector is not None:
            _check_dtype(self.vector.dtype)
            _check_shape(tuple(self.vector.shape))
            if not self.checksum:
                object.__setattr__(self, "checksum", zlib.crc32(_raw(self.vector)))


@dataclass(frozen=True)
class Expected:
    """What a receiver takes. `shapes` has one for each mix of a round; `bound` is the largest |value| that is no nonsense.

    `start` is the shape of a model in START.

    >>> Expected(run=bytes(16), kinds=frozenset(Kind), shapes=((7850,),), dtype=torch.float32, bound=1e6).largest
    1073741824
    """

    run: bytes
    kinds: frozenset[Kind]
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype
    bound: float
    start: tuple[int, ...] = ()
    largest: int = 1 << 30  # bytes of a vector
    sender: int | None = None  # whom the transport says that it is from

    def __post_init__(self) -> None:
        _check_dtype(self.dtype)
        checks.positive("bound", self.bound)
        for shape in (*self.shapes, self.start):
            _check_shape(shape)
            if math.prod(shape) * self.dtype.itemsize > self.largest:
                raise InputError(
                    "largest", self.largest, f"enough bytes for a vector of shape {shape}"
                )


def pack(message: Message) -> bytes:
    """The message as bytes: `unpack` gives it back."""
    vector = message.vector
    raw = b"" if vector is None else _raw(vector)
    shape = () if vector is None else tuple(vector.shape)
    header = _HEADER.pack(
        MAGIC,
        VERSION,
        message.kind,
        0 if vector is None else CODES[vector.dtype],
        message.run,
        message.sender,
        message.round,
        message.part,
        len(message.applied),
        len(shape),
        message.degree,
        *shape,
        *(0,) * (MAX_DIMENSIONS - len(shape)),
        len(raw),
        message.checksum,
    )
    applied = b"".join(_EXCHANGE.pack(*pair) for pair in message.applied)
    return b"".join((header, _CHECKSUM.pack(zlib.crc32(applied, zlib.crc32(header))), applied, raw))


def unpack(data: bytes | bytearray | memoryview, expected: Expected) -> Message:
    """The message in these bytes, or `Refused`. Memory is taken last, for what is known to be as expected.

    >>> expected = Expected(bytes(16), frozenset(Kind), ((2,),), torch.float32, bound=1e6)
    >>> sent = Message(Kind.MODEL, bytes(16), sender=3, round=7, degree=2, vector=torch.tensor([0.5, -2.0]))
    >>> unpack(pack(sent), expected).vector
    tensor([ 0.5000, -2.0000])
    >>> unpack(pack(sent)[:-1], expected)
    Traceback (most recent call last):
    gossamer.fleet.wire.Refused: a message of 79 bytes says that it has 80
    """
    view = memoryview(data).cast("B")
    if len(view) < HEADER_BYTES:
        raise Refused(
            "length",
            f"a message of {len(view)} bytes is shorter than a header, which has {HEADER_BYTES}",
        )
    fields = _HEADER.unpack_from(view)
    magic, version, kind, code, run, sender, round, part, count, dimensions, degree = fields[:11]
    *sizes, size, checksum = fields[11:]
    if magic != MAGIC:
        raise Refused("magic", "a message does not begin as those of gossamer do")
    if version != VERSION:
        raise Refused(
            "version", f"a message has version {version} of the layout; this device has {VERSION}"
        )
    start = HEADER_BYTES + _EXCHANGE.size * count
    if count > MAX_APPLIED or len(view) < start:
        raise Refused(
            "length",
            f"a message of {len(view)} bytes lists {count} exchanges; at most {MAX_APPLIED} are taken",
        )
    applied, raw = view[HEADER_BYTES:start], view[start:]
    if _CHECKSUM.unpack_from(view, _HEADER.size)[0] != zlib.crc32(
        applied, zlib.crc32(view[: _HEADER.size])
    ):
        raise Refused("checksum", "a message's header was damaged on its way")

    if run != expected.run:
        raise Refused("run", f"a message is of another run: {run.hex()}")
    if expected.sender is not None and sender != expected.sender:
        raise Refused(
            "sender", f"a message from device {expected.sender} names {sender} as its sender"
        )
    if kind not in expected.kinds:
        raise Refused("kind", f"a message of kind {kind} is not expected here")
    if size > expected.largest:
        raise Refused(
            "size", f"a message has a vector of {size} bytes; at most {expected.largest} are taken"
        )
    if len(view) != start + size:
        raise Refused("length", f"a message of {len(view)} bytes says that it has {start + size}")
    vector = None
    if kind in _WITH_VECTOR:
        shapes = (expected.start,) if kind == Kind.START else expected.shapes
        if part >= len(shapes):
            raise Refused("part", f"a message is for mix {part} of a round that has {len(shapes)}")
        shape = shapes[part]
        if code != CODES[expected.dtype]:
            raise Refused(
                "dtype", f"a message has numbers of type {code}; {expected.dtype} is expected"
            )
        if (dimensions, *sizes) != (len(shape), *shape, *(0,) * (MAX_DIMENSIONS - len(shape))):
            raise Refused(
                "shape",
                f"a message has a vector of shape {tuple(sizes[:dimensions])}; {shape} is expected",
            )
        if size != math.prod(shape) * expected.dtype.itemsize:
            raise Refused("shape", f"a message has {size} bytes for a vector of shape {shape}")
        if checksum != zlib.crc32(raw):
            raise Refused("checksum", "a message's vector was damaged on its way")
        vector = _vector(raw, shape, expected.dtype)
        _check_values(vector, expected.bound)
    elif code or dimensions or any(sizes) or size:
        raise Refused("fields", f"a message of kind {kind} has a vector, which it cannot have")
    try:
        exchanges = tuple(_EXCHANGE.iter_unpack(applied))
        return Message(Kind(kind), run, sender, round, part, degree, exchanges, vector, checksum)
    except InputError as error:
        raise Refused("fields", f"a message of kind {kind} makes no sense: {error}") from None


def _is_exchange(round: int, part: int) -> bool:
    return 0 <= round < 1 << 32 and 0 <= part < 1 << 16


def _check_dtype(dtype: torch.dtype) -> None:
    if dtype not in CODES:
        raise InputError("dtype", dtype, "torch.float32, torch.bfloat16 or torch.float64")


def _check_shape(shape: tuple[int, ...]) -> None:
    if len(shape) > MAX_DIMENSIONS or not all(0 < size < 1 << 32 for size in shape):
        raise InputError("shape", shape, f"at most {MAX_DIMENSIONS} dimensions of size 1 or more")


def _check_values(vector: Tensor, bound: float) -> None:
    low, high = (x.item() for x in torch.aminmax(vector))  # one reading; NaN comes through
    if math.isnan(low) or math.isnan(high):
        raise Refused("nan", "a message's vector has a value that is not a number")
    if math.isinf(low) or math.isinf(high):
        raise Refused("infinite", "a message's vector has an infinite value")
    if max(-low, high) > bound:
        raise Refused(
            "large",
            f"a message's vector has a value of size {max(-low, high):g}; at most {bound:g} is taken",
        )


def _raw(vector: Tensor) -> memoryview:
    """The numbers' bytes, little-endian; without a copy where the vector lies so already."""
    bits = vector.detach().cpu().contiguous().reshape(-1).view(_BITS[vector.dtype]).numpy()
    return bits.astype(f"<i{bits.itemsize}", copy=False).view(np.uint8).data


def _vector(raw: memoryview, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The other way; without a copy where the message may be written to: then it is nobody else's."""
    bits = np.frombuffer(raw, f"<i{dtype.itemsize}").astype(
        f"=i{dtype.itemsize}", copy=raw.readonly
    )
    return torch.from_numpy(bits).view(dtype).reshape(shape)
