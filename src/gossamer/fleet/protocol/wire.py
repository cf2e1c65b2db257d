"""The wire format of messages, byte by byte.

A message is a header of 72 bytes, a short list of exchanges, and a vector. All integers are
little-endian and unsigned:

    offset  bytes  field
    0       4      magic: "GSMR"
    4       2      version of this layout: 1
    6       1      kind: 1 MODEL, 2 READY, 3 ASK, 4 START, 5 BYE, 6 FREE, 7 PROPOSE, 8 ACCEPT,
                   9 BUSY
    7       1      dtype of the vector: 0 no vector, 1 float32, 2 bfloat16, 3 float64
    8       16     run: the run that the message belongs to
    24      4      sender: number of the device
    28      4      round; in meetings of two the number of the meeting on this link
    32      2      part: number of the exchange in its round, from 0
    34      1      a: number of exchanges listed, at most 64
    35      1      d: dimensions of the vector, at most 4
    36      4      degree: number of neighbours of the sender in this round
    40      16     shape: four sizes, 0 beyond d
    56      8      v: bytes of the vector
    64      4      checksum of the vector (CRC-32); in READY that of the vector received
    68      4      checksum of bytes 0 to 67 and of the list (CRC-32)
    72      8·a    applied: round (4 bytes) and part (4 bytes) of each exchange, ascending
    72+8a   v      elements of the vector, last dimension fastest; the message ends here

A field that a kind does not carry is 0. So every message has exactly one encoding: what `unpack`
accepts, `pack` reproduces.

    kind   carries                      meaning
    MODEL  degree, applied, vector      my vector of this exchange, and the exchanges with you that
                                        I have applied
    READY  checksum                     ack: your vector of this exchange is in my journal
    ASK                                 request of a new device: send me a model to start from
    START  vector                       response to ASK: a model; not part of any exchange
    BYE    applied                      I leave; no message follows

In meetings of two, which no clock starts, there are four more:

    FREE     applied                    I am ready for a meeting; round is my next number on this
                                        link
    PROPOSE                             let us meet under this number; sent to a device that is free
    ACCEPT                              we meet under this number; MODEL follows
    BUSY                                I am no longer free, and I withdraw what I have proposed

The checksum of a vector is separate, so that a vector for several neighbours is read once.
Checksums detect accidents, not forgery: TLS authenticates the sender.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from gossamer._core import checks
from gossamer.errors import GossamerError, InputError
from gossamer.fleet.protocol.messages import (
    DTYPE_CODES,
    MAX_APPLIED,
    MAX_DIMENSIONS,
    Kind,
    Message,
    check_dtype,
    check_shape,
    vector_bytes,
    vector_from_bytes,
)

MAGIC = b"GSMR"
VERSION = 1
_HEADER = struct.Struct("<4sHBB16sIIHBBI4IQI")  # the header without its checksum
_CHECKSUM = struct.Struct("<I")
_EXCHANGE = struct.Struct("<II")
HEADER_BYTES = _HEADER.size + _CHECKSUM.size

Reason = Literal[
    "length",  # truncated, or longer than announced
    "magic",
    "version",
    "checksum",
    "run",
    "sender",
    "kind",
    "fields",  # a field that this kind does not carry, or a value out of range
    "size",  # a vector beyond the largest
    "part",
    "dtype",
    "shape",
    "nan",
    "infinite",
    "large",  # a value beyond the bound
]


class Refused(GossamerError):
    """A message that is refused.

    Args:
        reason: The reason, for counts.
        sentence: The reason in one sentence.
    """

    def __init__(self, reason: Reason, sentence: str) -> None:
        super().__init__(reason, sentence)
        self.reason: Reason = reason
        self.sentence = sentence

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True)
class Expected:
    """What a receiver accepts.

    Args:
        run: The run that messages must belong to.
        kinds: Kinds of messages.
        shapes: Shape of the vector in each exchange of a round.
        dtype: dtype of vectors on the wire.
        bound: Largest absolute value of an element.
        start: Shape of the model in START.
        largest: Largest vector in bytes.
        sender: The sender as authenticated by the transport; None: any.
        guard: Largest length of a vector in an exchange, in lengths of the own one.

    Raises:
        InputError: If a field is out of range.

    Example:
        >>> expected = Expected(bytes(16), frozenset(Kind), ((7850,),), torch.float32, bound=1e6)
        >>> expected.largest
        1073741824
    """

    run: bytes
    kinds: frozenset[Kind]
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype
    bound: float
    start: tuple[int, ...] = ()
    largest: int = 1 << 30
    sender: int | None = None
    guard: float = math.inf

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        checks.positive("bound", self.bound)
        for shape in (*self.shapes, self.start):
            check_shape(shape)
            if math.prod(shape) * self.dtype.itemsize > self.largest:
                raise InputError(
                    "largest", self.largest, f"enough bytes for a vector of shape {shape}"
                )


class _Header(NamedTuple):
    magic: bytes
    version: int
    kind: int
    dtype_code: int
    run: bytes
    sender: int
    round: int
    part: int
    exchanges: int
    dimensions: int
    degree: int
    size_0: int
    size_1: int
    size_2: int
    size_3: int
    vector_size: int
    vector_checksum: int

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.size_0, self.size_1, self.size_2, self.size_3


def pack(message: Message) -> bytes:
    """Return a message as bytes.

    Args:
        message: The message.

    Example:
        >>> len(pack(Message(Kind.ASK, bytes(16), sender=3, round=7)))
        72
    """
    code = 0
    shape: tuple[int, ...] = ()
    elements: bytes | memoryview = b""
    if message.vector is not None:
        code = DTYPE_CODES[message.vector.dtype]
        shape = tuple(message.vector.shape)
        elements = vector_bytes(message.vector)
    header = _HEADER.pack(
        MAGIC,
        VERSION,
        message.kind,
        code,
        message.run,
        message.sender,
        message.round,
        message.part,
        len(message.applied),
        len(shape),
        message.degree,
        *_padded(shape),
        len(elements),
        message.checksum,
    )
    applied = b"".join(_EXCHANGE.pack(*exchange) for exchange in message.applied)
    checksum = _CHECKSUM.pack(zlib.crc32(applied, zlib.crc32(header)))
    return b"".join((header, checksum, applied, elements))


def unpack(data: bytes | bytearray | memoryview, expected: Expected) -> Message:
    """Return the message in these bytes.

    Memory is allocated last, only for what is known to be as expected.

    Args:
        data: The bytes. The vector of a writable buffer is used without a copy.
        expected: What to accept.

    Raises:
        Refused: If the message is damaged or not as expected.

    Example:
        >>> expected = Expected(bytes(16), frozenset(Kind), ((2,),), torch.float32, bound=1e6)
        >>> x = torch.tensor([0.5, -2.0])
        >>> data = pack(Message(Kind.MODEL, bytes(16), sender=3, round=7, degree=2, vector=x))
        >>> unpack(data, expected).vector
        tensor([ 0.5000, -2.0000])
        >>> unpack(data[:-1], expected)
        Traceback (most recent call last):
        gossamer.fleet.protocol.wire.Refused: a message of 79 bytes announces 80
    """
    view = memoryview(data).cast("B")
    header = _read_header(view)
    start = HEADER_BYTES + _EXCHANGE.size * header.exchanges
    _check_header(header, start, len(view), expected)
    vector = None
    if Kind(header.kind).has_vector:
        vector = _read_vector(header, view[start:], expected)
    elif header.dtype_code or header.dimensions or any(header.sizes) or header.vector_size:
        raise Refused("fields", f"a message of kind {header.kind} must not have a vector")
    try:
        return Message(
            Kind(header.kind),
            header.run,
            header.sender,
            header.round,
            header.part,
            header.degree,
            tuple(_EXCHANGE.iter_unpack(view[HEADER_BYTES:start])),
            vector,
            header.vector_checksum,
        )
    except InputError as error:
        raise Refused("fields", f"a message of kind {header.kind} is invalid: {error}") from None


def _read_header(view: memoryview) -> _Header:
    """Return the header, if it is complete and undamaged."""
    if len(view) < HEADER_BYTES:
        raise Refused(
            "length",
            f"a message of {len(view)} bytes is shorter than a header, which has {HEADER_BYTES}",
        )
    header = _Header(*_HEADER.unpack_from(view))
    if header.magic != MAGIC:
        raise Refused("magic", "a message does not begin as messages of gossamer do")
    if header.version != VERSION:
        raise Refused(
            "version",
            f"a message has version {header.version} of the layout; this device has {VERSION}",
        )
    end = HEADER_BYTES + _EXCHANGE.size * header.exchanges
    if header.exchanges > MAX_APPLIED or len(view) < end:
        raise Refused(
            "length",
            f"a message of {len(view)} bytes lists {header.exchanges} exchanges;"
            f" at most {MAX_APPLIED} are accepted",
        )
    checksum = zlib.crc32(view[HEADER_BYTES:end], zlib.crc32(view[: _HEADER.size]))
    if _CHECKSUM.unpack_from(view, _HEADER.size)[0] != checksum:
        raise Refused("checksum", "the header of a message was damaged in transit")
    return header


def _check_header(header: _Header, start: int, length: int, expected: Expected) -> None:
    """Check the fields that all kinds have. The vector begins at `start` of `length` bytes."""
    if header.run != expected.run:
        raise Refused("run", f"a message belongs to another run: {header.run.hex()}")
    if expected.sender is not None and header.sender != expected.sender:
        raise Refused(
            "sender", f"a message from device {expected.sender} names {header.sender} as its sender"
        )
    if header.kind not in expected.kinds:
        raise Refused("kind", f"a message of kind {header.kind} is not expected here")
    if header.vector_size > expected.largest:
        raise Refused(
            "size",
            f"a message has a vector of {header.vector_size} bytes;"
            f" at most {expected.largest} are accepted",
        )
    announced = start + header.vector_size
    if length != announced:
        raise Refused("length", f"a message of {length} bytes announces {announced}")


def _read_vector(header: _Header, data: memoryview, expected: Expected) -> Tensor:
    """Return the vector, if it is undamaged and as expected."""
    shapes = expected.shapes
    if header.kind == Kind.START:
        shapes = (expected.start,)
    if header.part >= len(shapes):
        raise Refused(
            "part", f"a message is for exchange {header.part} of a round that has {len(shapes)}"
        )
    shape = shapes[header.part]
    if header.dtype_code != DTYPE_CODES[expected.dtype]:
        raise Refused(
            "dtype",
            f"a message has elements of type {header.dtype_code}; {expected.dtype} is expected",
        )
    if (header.dimensions, *header.sizes) != (len(shape), *_padded(shape)):
        found = header.sizes[: header.dimensions]
        raise Refused("shape", f"a message has a vector of shape {found}; {shape} is expected")
    if header.vector_size != math.prod(shape) * expected.dtype.itemsize:
        raise Refused(
            "shape", f"a message has {header.vector_size} bytes for a vector of shape {shape}"
        )
    if header.vector_checksum != zlib.crc32(data):
        raise Refused("checksum", "the vector of a message was damaged in transit")
    vector = vector_from_bytes(data, shape, expected.dtype)
    _check_values(vector, expected.bound)
    return vector


def _padded(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape + (0,) * (MAX_DIMENSIONS - len(shape))


def _check_values(vector: Tensor, bound: float) -> None:
    low, high = (x.item() for x in torch.aminmax(vector))  # one pass; NaN propagates
    if math.isnan(low) or math.isnan(high):
        raise Refused("nan", "the vector of a message has a value that is not a number")
    if math.isinf(low) or math.isinf(high):
        raise Refused("infinite", "the vector of a message has an infinite value")
    largest = max(-low, high)
    if largest > bound:
        raise Refused(
            "large",
            f"the vector of a message has a value of size {largest:g};"
            f" at most {bound:g} is accepted",
        )
