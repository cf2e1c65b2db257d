"""Write tensors to a safetensors file, without a copy of them in memory.

The format is that of https://github.com/huggingface/safetensors: the length of a header (64 bits),
the header in JSON, then the values. `safetensors.torch.save` returns the whole file as bytes, and
`save_file` replaces files by itself, with a mode of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.complex64: "C64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_BLOCK = 16 << 20  # bytes of a tensor that is not contiguous that are copied at a time


def write_tensors(
    file: BinaryIO, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors to an open file.

    Args:
        file: The file.
        tensors: The tensors by name, on the CPU.
        metadata: Texts that are kept with them, by name.

    Example:
        >>> from io import BytesIO
        >>> from safetensors.torch import load
        >>> file = BytesIO()
        >>> write_tensors(file, {"w": torch.arange(3.0)})
        >>> load(file.getvalue())["w"]
        tensor([0., 1., 2.])
    """
    shapes = {name: Shape(x.dtype, tuple(x.shape)) for name, x in tensors.items()}
    layout = Layout.of(shapes, metadata)
    file.write(layout.header)
    for name in layout.begin:
        for part in byte_blocks(tensors[name]):
            file.write(part)


@dataclass(frozen=True)
class Shape:
    """Type and shape of a tensor.

    Attributes:
        dtype: The type of its elements.
        shape: Its shape.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Size of the tensor."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@dataclass(frozen=True)
class Layout:
    """Where tensors are in a file, so that several processes can write their rows.

    Attributes:
        header: The first bytes of the file.
        begin: Where the values of each tensor begin, in the order of the file.
        size: Size of the file in bytes.
    """

    header: bytes
    begin: dict[str, int]
    size: int

    @classmethod
    def of(cls, shapes: Mapping[str, Shape], metadata: Mapping[str, str] | None = None) -> Layout:
        """Return the layout of a file.

        Args:
            shapes: The tensors by name.
            metadata: Texts that are kept with them, by name.

        Example:
            >>> layout = Layout.of({"w": Shape(torch.float32, (3,))})
            >>> layout.size - layout.begin["w"]
            12
        """
        # Wide types first: all values are then aligned.
        ordered = sorted(shapes.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
        header: dict[str, Any] = {}
        if metadata is not None:
            header["__metadata__"] = dict(metadata)
        begin = {}
        end = 0
        for name, x in ordered:
            begin[name] = end
            end += x.bytes
            header[name] = {
                "dtype": _TYPES[x.dtype],
                "shape": list(x.shape),
                "data_offsets": [begin[name], end],
            }
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        head = struct.pack("<Q", len(text)) + text
        begin = {name: len(head) + offset for name, offset in begin.items()}
        return cls(head, begin, len(head) + end)


def write_rows(file: int, begin: int, rows: NDArray[np.int64], x: Tensor) -> None:
    """Write rows of a tensor into a file that other processes write to as well.

    Args:
        file: Descriptor of the open file.
        begin: Where the first row of the tensor begins.
        rows: Number of each row of x in the whole tensor, ascending.
        x: The rows, on the CPU.
    """
    if x.numel() == 0:
        return
    size = x[0].nbytes
    bounds = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)]
    for first, last in pairwise(bounds):  # rows that follow each other
        offset = begin + int(rows[first]) * size
        for block in byte_blocks(x[first:last]):
            rest = block
            while rest:  # a call writes at most 2 GB
                written = os.pwrite(file, rest, offset)
                rest = rest[written:]
                offset += written


def digest_of_rows(name: str, rows: NDArray[np.int64], x: Tensor) -> int:
    """Return the sum of the digests of some rows of a tensor, modulo 2^128.

    The sums of several processes add up to that of the whole tensor.

    Args:
        name: Name of the tensor.
        rows: Number of each row of x in the whole tensor.
        x: The rows, on the CPU.

    Example:
        >>> x = torch.arange(6.0).view(3, 2)
        >>> whole = digest_of_rows("x", np.arange(3), x)
        >>> parts = digest_of_rows("x", np.array([1]), x[1:2])
        >>> parts += digest_of_rows("x", np.array([0, 2]), x[::2])
        >>> whole == parts % 2**128
        True
    """
    description = f"{name} {x.dtype} {list(x.shape[1:])}".encode()
    key = hashlib.blake2b(description, digest_size=16).digest()
    total = 0
    for position, number in enumerate(rows.tolist()):
        digest = hashlib.blake2b(digest_size=16, key=key, salt=number.to_bytes(16, "little"))
        for block in byte_blocks(x[position : position + 1]):
            digest.update(block)
        total += int.from_bytes(digest.digest(), "little")
    return total % 2**128


def byte_blocks(x: Tensor) -> Iterator[memoryview]:
    """Yield the bytes of a tensor, row by row.

    Args:
        x: The tensor, on the CPU. If it is contiguous, nothing is copied; if not, some rows at a
            time are.
    """
    parts: tuple[Tensor, ...] = (x,)
    if not x.is_contiguous():
        rows = max(1, _BLOCK // max(1, x[0].nbytes))
        parts = torch.split(x, rows)
    for part in parts:
        yield part.contiguous().reshape(-1).view(torch.uint8).numpy().data
