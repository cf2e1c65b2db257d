"""Tensors in safetensors files, read back by the safetensors package."""

from __future__ import annotations

import json
from io import BytesIO

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load
from torch import Tensor

from gossamer._core import tensor_files
from gossamer._core.tensor_files import byte_blocks, write_tensors

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    x = torch.arange(100)[: torch.Size(shape).numel()].view(shape)
    x = x.to(draw(st.sampled_from(DTYPES)))
    if draw(st.booleans()) and x.dim() > 1:
        x = x.transpose(0, -1)  # not contiguous
    return x


def written(parts: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    file = BytesIO()
    write_tensors(file, parts, metadata)
    return file.getvalue()


@given(st.dictionaries(NAMES.filter(lambda name: name != "__metadata__"), tensors(), max_size=4))
@settings(max_examples=50, deadline=None)
def test_the_safetensors_package_reads_the_file(parts: dict[str, Tensor]) -> None:
    found = load(written(parts))
    assert set(found) == set(parts)
    for name, x in found.items():
        assert x.dtype == parts[name].dtype
        assert torch.equal(x, parts[name])


def test_metadata_are_kept() -> None:
    content = written({"w": torch.ones(2)}, {"round": "3"})
    length = int.from_bytes(content[:8], "little")
    assert json.loads(content[8 : 8 + length])["__metadata__"] == {"round": "3"}
    assert torch.equal(load(content)["w"], torch.ones(2))


def test_rows_that_are_not_contiguous_are_copied_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tensor_files, "_BLOCK", 16)
    x = torch.arange(30.0).view(5, 6)[:, :2]
    blocks = [bytes(block) for block in byte_blocks(x)]
    assert max(map(len, blocks)) <= 16
    assert b"".join(blocks) == x.contiguous().numpy().tobytes()
