"""The wire format: messages arrive bit for bit, and everything else is refused."""

from __future__ import annotations

import math
import struct
import tracemalloc
import zlib
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gossamer import draws
from gossamer.errors import InputError
from gossamer.fleet.protocol.messages import DTYPE_CODES, MAX_APPLIED, Kind, Message
from gossamer.fleet.protocol.wire import Expected, Reason, Refused, pack, unpack

GOLDEN = Path(__file__).parent / "data" / "wire_messages.txt"
RUN = bytes(range(16))
VECTOR = torch.tensor([[0.5, -2.0, 0.0], [-0.0, 1e-3, 3.0]])
BITS = {torch.float32: np.int32, torch.bfloat16: np.int16, torch.float64: np.int64}

# One message of each kind and dtype, with every field in use.
SENT = {
    "MODEL float32": Message(Kind.MODEL, RUN, 3, 7, 1, 2, ((5, 0), (5, 1), (6, 0)), VECTOR),
    "MODEL bfloat16": Message(Kind.MODEL, RUN, 3, 7, degree=2, vector=VECTOR.bfloat16()),
    "MODEL float64": Message(Kind.MODEL, RUN, 3, 7, degree=2, vector=VECTOR.double()),
    "READY": Message(Kind.READY, RUN, 4, 7, 1, checksum=0xBEFD2B5D),
    "ASK": Message(Kind.ASK, RUN, 5, 7),
    "START float32": Message(Kind.START, RUN, 3, 7, vector=VECTOR),
    "BYE": Message(Kind.BYE, RUN, 3, 0xFFFFFFFF, applied=((0, 0xFFFF), (0xFFFFFFFF, 0))),
}


def expecting(message: Message | None = None, **changed: Any) -> Expected:
    """Return what accepts the message, with some fields changed."""
    vector = VECTOR if message is None or message.vector is None else message.vector
    shape, bound = tuple(vector.shape), torch.finfo(vector.dtype).max
    expected = Expected(RUN, frozenset(Kind), (shape,) * 2, vector.dtype, bound, start=shape)
    return replace(expected, **changed)


def same(a: Message, b: Message) -> bool:
    for name in ("kind", "run", "sender", "round", "part", "degree", "applied", "checksum"):
        if getattr(a, name) != getattr(b, name):
            return False
    if a.vector is None or b.vector is None:
        return a.vector is b.vector
    if a.vector.dtype != b.vector.dtype or a.vector.shape != b.vector.shape:
        return False
    return bits(a.vector) == bits(b.vector)


def bits(vector: Tensor) -> list[int]:
    width = {2: torch.int16, 4: torch.int32, 8: torch.int64}[vector.dtype.itemsize]
    return list(vector.reshape(-1).view(width).tolist())


def forged(data: bytes, offset: int, layout: str, *values: int | bytes) -> bytes:
    """Return a message with other values at an offset of the header, and a valid checksum."""
    changed = bytearray(data)
    struct.pack_into(layout, changed, offset, *values)
    listed = changed[72 : 72 + 8 * changed[34]]
    struct.pack_into("<I", changed, 68, zlib.crc32(bytes(changed[:68]) + listed))
    return bytes(changed)


def reason(data: bytes, expected: Expected) -> Reason:
    with pytest.raises(Refused) as refused:
        unpack(data, expected)
    assert str(refused.value) == refused.value.sentence
    assert "\n" not in refused.value.sentence
    return refused.value.reason


@st.composite
def vectors(draw: st.DrawFn) -> Tensor:
    dtype = draw(st.sampled_from(list(DTYPE_CODES)))
    shape = draw(st.lists(st.integers(1, 4), max_size=4))
    size = math.prod(shape) * dtype.itemsize
    raw = draw(st.binary(min_size=size, max_size=size))
    vector = torch.from_numpy(np.frombuffer(raw, BITS[dtype]).copy()).view(dtype)
    return torch.where(vector.isfinite(), vector, torch.zeros((), dtype=dtype)).reshape(shape)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    u16, u32 = st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1)
    kind = draw(st.sampled_from(list(Kind)))
    return Message(
        kind,
        RUN,
        draw(u32),
        draw(u32),
        draw(
            st.integers(0, 1) if kind == Kind.MODEL else st.just(0) if kind == Kind.START else u16
        ),
        draw(st.integers(1, 2**32 - 1)) if kind == Kind.MODEL else 0,
        tuple(sorted(draw(st.sets(st.tuples(u32, u16), max_size=MAX_APPLIED))))
        if kind in {Kind.MODEL, Kind.BYE}
        else (),
        draw(vectors()) if kind in {Kind.MODEL, Kind.START} else None,
        draw(u32) if kind == Kind.READY else 0,
    )


@settings(max_examples=300)
@given(messages(), st.booleans())
def test_messages_are_read_back(message: Message, as_view: bool) -> None:
    data = pack(message)
    received = unpack(
        memoryview(data) if as_view else data, expecting(message, sender=message.sender)
    )
    assert same(received, message)
    assert pack(received) == data


@pytest.mark.parametrize("name", SENT)
def test_every_flipped_bit_is_refused(name: str) -> None:
    message = SENT[name]
    data = bytearray(pack(message))
    expected = expecting(message)
    reasons: Counter[Reason] = Counter()
    for k in range(8 * len(data)):
        data[k // 8] ^= 1 << k % 8
        reasons[reason(bytes(data), expected)] += 1
        data[k // 8] ^= 1 << k % 8
    assert same(unpack(bytes(data), expected), message)
    assert reasons["magic"] == 32
    assert reasons["version"] == 16
    # Damage is not mistaken for a message of another kind, run or shape.
    assert set(reasons) <= {"magic", "version", "checksum", "length"}
    if message.vector is not None:
        assert reasons["checksum"] >= 8 * message.vector.nbytes


@pytest.mark.parametrize("name", SENT)
def test_every_truncation_is_refused(name: str) -> None:
    data = pack(SENT[name])
    expected = expecting(SENT[name])
    assert {reason(data[:k], expected) for k in range(len(data))} == {"length"}
    assert reason(data + b"\0", expected) == "length"
    assert reason(data + data, expected) == "length"


@settings(max_examples=300)
@given(
    st.binary(max_size=400),
    st.sampled_from([b"", b"GSMR", b"GSMR\x01\x00", pack(SENT["ASK"])[:24]]),
)
def test_random_bytes_are_refused(noise: bytes, start: bytes) -> None:
    with pytest.raises(Refused):
        unpack(start + noise, expecting())


FIELDS = {  # offset: layout
    4: "<H",
    6: "<B",
    7: "<B",
    24: "<I",
    28: "<I",
    32: "<H",
    34: "<B",
    35: "<B",
    36: "<I",
    40: "<I",
    44: "<I",
    48: "<I",
    52: "<I",
    56: "<Q",
    64: "<I",
    72: "<I",
    76: "<I",
}


@settings(max_examples=500)
@given(
    st.sampled_from(list(SENT)),
    st.lists(st.tuples(st.sampled_from(list(FIELDS)), st.data()), min_size=1, max_size=3),
)
def test_a_forged_message_is_refused_or_is_a_valid_encoding(
    name: str, changes: list[tuple[int, st.DataObject]]
) -> None:
    data = pack(SENT[name])
    expected = expecting(SENT[name])
    for offset, choose in changes:
        width = struct.calcsize(FIELDS[offset])
        if offset + width <= len(data):
            value = choose.draw(st.integers(0, 8) | st.integers(0, 256**width - 1))
            data = forged(data, offset, FIELDS[offset], value)
    try:
        message = unpack(data, expected)
    except Refused:
        return
    assert pack(message) == data


MODEL = pack(SENT["MODEL float32"])
READY = pack(SENT["READY"])


def test_refused_messages_leave_no_memory_in_use() -> None:
    fields = list(FIELDS)
    inputs = []
    for k in range(700):
        offset = fields[k % len(fields)]
        noise = draws.bits(1, "fuzz", k, np.arange(40))
        value = int(noise[0]) % 256 ** struct.calcsize(FIELDS[offset])
        inputs += [
            forged(MODEL, offset, FIELDS[offset], value),
            noise.tobytes(),
            MODEL[: k % 96] + noise.tobytes(),
            MODEL,
        ]

    def fuzz() -> int:
        accepted = 0
        for data in inputs:
            with suppress(Refused):
                unpack(data, expecting())
                accepted += 1
        return accepted

    assert 0 < fuzz() < len(inputs) / 2  # also a first pass, so that caches do not count
    tracemalloc.start()
    try:
        fuzz()
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        fuzz()
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 10_000
    assert peak - before < 100_000


@pytest.mark.parametrize(
    ("wanted", "data", "changed"),
    [
        ("magic", forged(MODEL, 0, "4s", b"GET "), {}),
        ("version", forged(MODEL, 4, "<H", 2), {}),
        ("run", MODEL, {"run": bytes(16)}),
        ("sender", MODEL, {"sender": 4}),
        ("kind", MODEL, {"kinds": frozenset({Kind.READY})}),
        ("kind", forged(MODEL, 6, "<B", 10), {}),
        ("size", MODEL, {"shapes": (), "start": (), "largest": 23}),
        ("part", MODEL, {"shapes": ((2, 3),)}),
        ("dtype", MODEL, {"dtype": torch.bfloat16}),
        ("dtype", MODEL, {"dtype": torch.float64}),
        ("dtype", forged(MODEL, 7, "<B", 4), {}),
        ("shape", MODEL, {"shapes": ((6,), (6,))}),
        ("shape", MODEL, {"shapes": ((3, 2), (3, 2))}),
        ("shape", forged(MODEL, 52, "<I", 1), {}),  # a size beyond its dimensions
        ("shape", forged(MODEL, 56, "<Q", 20)[:-4], {}),  # fewer elements than its shape has
        ("length", forged(MODEL, 34, "<B", 255), {}),
        ("fields", forged(MODEL, 36, "<I", 0), {}),  # of a device without neighbours
        ("fields", forged(READY, 36, "<I", 1), {}),
        ("fields", forged(READY, 7, "<B", 1), {}),
        ("fields", forged(pack(SENT["ASK"]), 64, "<I", 1), {}),
        ("fields", forged(MODEL, 72, "<I", 6), {}),  # a list that does not ascend
        ("fields", forged(MODEL, 76, "<I", 1 << 16), {}),  # a part out of range
    ],
)
def test_every_refusal_has_its_reason(wanted: Reason, data: bytes, changed: dict[str, Any]) -> None:
    assert same(unpack(MODEL, expecting()), SENT["MODEL float32"])
    assert reason(data, expecting(**changed)) == wanted


@pytest.mark.parametrize("dtype", DTYPE_CODES)
@pytest.mark.parametrize(
    ("wanted", "values"),
    [
        ("nan", [math.nan]),
        ("nan", [math.inf, math.nan, -math.inf]),
        ("infinite", [math.inf]),
        ("infinite", [-math.inf]),
        ("large", [1001.0 * 2]),
        ("large", [-1001.0 * 2]),
    ],
)
def test_invalid_values_are_refused(
    dtype: torch.dtype, wanted: Reason, values: list[float]
) -> None:
    vector = torch.zeros(50, dtype=dtype)
    vector[40 : 40 + len(values)] = torch.tensor(values, dtype=dtype)
    message = Message(Kind.START, RUN, 3, 7, vector=vector)
    expected = expecting(message, bound=1000.0)
    assert reason(pack(message), expected) == wanted
    vector = torch.tensor([-1000.0, 1000.0] * 25, dtype=dtype)  # the bound itself is accepted
    assert unpack(pack(Message(Kind.START, RUN, 3, 7, vector=vector)), expected).vector is not None


def test_an_announced_size_allocates_nothing() -> None:
    claims = [
        forged(MODEL, 56, "<Q", 1 << 40),
        forged(MODEL, 56, "<Q", (1 << 64) - 1),
        forged(forged(MODEL, 40, "<2I", 1 << 20, 1 << 18), 56, "<Q", 1 << 40),
        forged(MODEL, 34, "<BB", 255, 255),
    ]
    expected = expecting(largest=(1 << 40) - 1)
    for data in claims:  # a first pass, so that caches do not count
        reason(data, expected)
    tracemalloc.start()
    try:
        reasons = [reason(data, expected) for data in claims]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert reasons == ["size", "size", "size", "length"]
    assert peak < 100_000


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_a_vector_is_copied_at_most_once_and_is_writable(
    kind: type[bytes] | type[bytearray],
) -> None:
    """Read-only bytes are copied once; a bytearray belongs to the receiver and is used as it is."""
    vector = torch.linspace(-1, 1, 250_000)
    data = kind(pack(Message(Kind.START, RUN, 3, 7, vector=vector)))
    expected = expecting(None, start=(250_000,))
    tracemalloc.start()
    try:
        received = unpack(data, expected).vector
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < (1.2 if kind is bytes else 0.2) * vector.nbytes
    assert received is not None
    assert torch.equal(received, vector)
    received += 1


def test_a_transposed_vector_is_sent_in_order() -> None:
    vector = torch.arange(12.0).reshape(3, 4).t().requires_grad_()
    message = Message(Kind.START, RUN, 3, 7, vector=vector)
    received = unpack(pack(message), expecting(message)).vector
    assert received is not None
    assert received.tolist() == vector.tolist()


def test_bfloat16_is_half_of_float32() -> None:
    x = torch.linspace(-3, 3, 1001)
    message = Message(Kind.START, RUN, 3, 7, vector=x.bfloat16())
    data = pack(message)
    assert len(data) == 72 + 2 * 1001
    received = unpack(data, expecting(message)).vector
    assert received is not None
    # 8 bits of mantissa, rounded to nearest: the upper half of float32's bits up to rounding.
    assert bool(((received.float() - x).abs() <= 2**-8 * x.abs()).all())
    upper = np.frombuffer(data[72:], "<u2").astype("<u4") << 16
    assert np.array_equal(upper.view("<f4"), received.float().numpy())


def test_the_checksum_of_a_vector_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = SENT["MODEL float32"]
    crc32 = zlib.crc32
    lengths: list[int] = []

    def counted(data: Any, start: int = 0) -> int:
        lengths.append(len(data))
        return crc32(data, start)

    monkeypatch.setattr("zlib.crc32", counted)
    other = pack(replace(first, applied=((6, 1),)))
    assert max(lengths) == 68  # of headers and lists only
    monkeypatch.undo()
    assert other == pack(Message(Kind.MODEL, RUN, 3, 7, 1, 2, ((6, 1),), VECTOR))


@pytest.mark.parametrize(
    ("field", "changed"),
    [
        ("run", {"run": b"short"}),
        ("sender", {"sender": -1}),
        ("round", {"round": 1 << 32}),
        ("part", {"part": 1 << 16}),
        ("degree", {"degree": 0}),
        ("degree", {"kind": Kind.START}),
        ("applied", {"applied": ((2, 0), (1, 0))}),
        ("applied", {"applied": ((1, 0), (1, 0))}),
        ("applied", {"applied": ((1, 1 << 16),)}),
        ("applied", {"applied": tuple((k, 0) for k in range(MAX_APPLIED + 1))}),
        ("applied", {"kind": Kind.START, "degree": 0, "applied": ((1, 0),)}),
        ("vector", {"vector": None}),
        ("vector", {"kind": Kind.BYE, "degree": 0, "checksum": 0}),
        ("checksum", {"kind": Kind.BYE, "degree": 0, "vector": None, "checksum": 1}),
        ("dtype", {"vector": torch.ones(3, dtype=torch.int32)}),
        ("dtype", {"vector": torch.ones(3, dtype=torch.float16)}),
        ("shape", {"vector": torch.ones(1, 1, 1, 1, 1)}),
        ("shape", {"vector": torch.ones(0)}),
    ],
)
def test_an_invalid_message_cannot_be_made(field: str, changed: dict[str, Any]) -> None:
    with pytest.raises(InputError) as refused:
        replace(Message(Kind.MODEL, RUN, 3, 7, degree=1, vector=VECTOR), **changed)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("field", "changed"),
    [
        ("dtype", {"dtype": torch.float16}),
        ("bound", {"bound": math.nan}),
        ("bound", {"bound": math.inf}),
        ("bound", {"bound": 0.0}),
        ("shape", {"shapes": ((0,),)}),
        ("largest", {"largest": 23}),
    ],
)
def test_invalid_expectations_are_refused(field: str, changed: dict[str, Any]) -> None:
    with pytest.raises(InputError) as refused:
        expecting(**changed)
    assert refused.value.field == field


def test_the_layout_is_as_documented() -> None:
    """Read the offsets of the table in the module."""
    offsets = [0, 4, 6, 7, 8, 24, 28, 32, 34, 35, 36, 40, 56, 64, 68, 72]
    pieces = [MODEL[a:b] for a, b in pairwise(offsets)]
    numbers = [int.from_bytes(piece, "little") for piece in pieces]
    assert pieces[0] == b"GSMR"
    assert numbers[1:4] == [1, 1, 1]  # version, MODEL, float32
    assert pieces[4] == RUN
    assert numbers[5:11] == [3, 7, 1, 3, 2, 2]  # sender, round, part, a, d, degree
    assert numbers[11] == 2 + (3 << 32)
    assert numbers[12:] == [24, zlib.crc32(MODEL[-24:]), zlib.crc32(MODEL[:68] + MODEL[72:96])]
    assert struct.unpack("<6I", MODEL[72:96]) == (5, 0, 5, 1, 6, 0)
    assert np.frombuffer(MODEL[96:], "<f4").tolist() == [
        0.5,
        -2.0,
        0.0,
        -0.0,
        np.float32(1e-3),
        3.0,
    ]


def test_the_format_has_not_changed() -> None:
    """Older devices read these messages. If they must change, change VERSION and the file too."""
    written = dict(line.split(": ") for line in GOLDEN.read_text(encoding="ascii").splitlines())
    assert written == {name: pack(message).hex() for name, message in SENT.items()}
    for name, message in SENT.items():
        assert same(unpack(bytes.fromhex(written[name]), expecting(message)), message)
