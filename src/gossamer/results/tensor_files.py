"""Write tensors to a safetensors file, without a copy of them in memory.

The format is that of https://github.com/huggingface/safetensors: the length of a header (64 bits),
the header in JSON, then the values. `safetensors.torch.save` returns the whole file as bytes, and
`save_file` replaces files by itself, with a mode of its own.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import torch
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
    # Wide types first: all values are then aligned.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    header: dict[str, Any] = {}
    if metadata is not None:
        header["__metadata__"] = dict(metadata)
    end = 0
    for name, x in ordered:
        begin = end
        end += x.nbytes
        header[name] = {
            "dtype": _TYPES[x.dtype],
            "shape": list(x.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)))
    file.write(text)
    for _, x in ordered:
        for part in byte_blocks(x):
            file.write(part)


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
