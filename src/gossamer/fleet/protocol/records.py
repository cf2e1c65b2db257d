"""Records on disk: a JSON header and tensors, with checksums of both. Nothing is unpickled.

bytes  field
4      mark: "GSMJ"
4      h: bytes of the header, little-endian as all integers
8      v: bytes of all tensors
4      checksum of the fields above and of the header (CRC-32)
h      header: JSON; "tensors" has name, dtype, shape and checksum (CRC-32) of each
v      elements of the tensors as they are in memory
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from gossamer._core.disk import SYSTEM_DISK, Disk
from gossamer._core.files import os_errors

MARK = b"GSMJ"
LENGTHS = struct.Struct("<4sIQ")
CHECKSUM = struct.Struct("<I")
_FRAME = LENGTHS.size + CHECKSUM.size
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64,
        torch.float32,
        torch.bfloat16,
        torch.float16,
        torch.int64,
        torch.int32,
        torch.uint8,
        torch.bool,
    )
}

Record = tuple[dict[str, Any], dict[str, Tensor]]


def write_record(
    file: BinaryIO,
    header: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    checksums: Mapping[str, int],
) -> None:
    """Write a record.

    Args:
        file: An open file.
        header: The header, which JSON can represent.
        tensors: The tensors by name.
        checksums: CRC-32 of tensors, where known: computing one costs more than a copy.
    """
    contents = []
    described = []
    for name, tensor in tensors.items():
        content = _tensor_bytes(tensor)
        checksum = checksums[name] if name in checksums else zlib.crc32(content)
        dtype = str(tensor.dtype).removeprefix("torch.")
        described.append([name, dtype, list(tensor.shape), checksum])
        contents.append(content)
    text = json.dumps({**header, "tensors": described}).encode()
    lengths = LENGTHS.pack(MARK, len(text), sum(map(len, contents)))
    file.write(lengths + CHECKSUM.pack(zlib.crc32(text, zlib.crc32(lengths))) + text)
    for content in contents:
        file.write(content)


def read_records(path: Path, disk: Disk = SYSTEM_DISK) -> Iterator[Record]:
    """Yield the records of a file, up to one that a crash has truncated or that is damaged.

    Args:
        path: The file; it may be missing.
        disk: Where the file is.

    Raises:
        DataError: If the file cannot be read.
    """
    if not disk.exists(path):
        return
    with os_errors("read", path):
        data = memoryview(disk.read(path))
    while len(data) >= _FRAME:
        mark, header_size, tensors_size = LENGTHS.unpack_from(data)
        body = data[_FRAME:]
        text = body[:header_size]
        content = body[header_size : header_size + tensors_size]
        checksum = zlib.crc32(text, zlib.crc32(data[: LENGTHS.size]))
        damaged = checksum != CHECKSUM.unpack_from(data, LENGTHS.size)[0]
        if mark != MARK or len(content) != tensors_size or damaged:
            return
        header = json.loads(bytes(text))
        tensors = _read_tensors(header["tensors"], content)
        if tensors is None:
            return
        yield header, tensors
        data = body[header_size + tensors_size :]


def _read_tensors(described: list[Any], content: memoryview) -> dict[str, Tensor] | None:
    """Return the tensors, or None if they are not as described."""
    tensors = {}
    for name, dtype_name, shape, checksum in described:
        dtype = _DTYPES.get(dtype_name)
        if dtype is None or any(length < 0 for length in shape):
            return None
        size = math.prod(shape) * dtype.itemsize
        # Before memory is allocated for it.
        if size > len(content) or zlib.crc32(content[:size]) != checksum:
            return None
        tensors[name] = torch.empty(shape, dtype=dtype)
        _tensor_bytes(tensors[name])[:] = content[:size]
        content = content[size:]
    return tensors


def _tensor_bytes(x: Tensor) -> memoryview:
    """Return the elements as they are in memory; without a copy if they are contiguous."""
    return x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
