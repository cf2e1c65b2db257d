"""The buffer pool: memory is never reused while a tensor refers to it."""

from __future__ import annotations

import math

import pytest
import torch
from support.methods import EVERY, MORE
from torch import Tensor

import gossamer as gs
from gossamer.engines import Plan, Simulator, buffers
from gossamer.engines.buffers import BufferPool

LARGE = torch.empty(9_000_000).view(3000, 3000)
METHODS = {name: method for name, method in (EVERY | MORE).items() if name != "adom"}


def test_memory_in_use_is_not_reused() -> None:
    pool = BufferPool()
    first = pool.empty_like(LARGE)
    address = first.data_ptr()
    view = first[7].view(-1, 10)
    second = pool.empty_like(LARGE)
    assert second.data_ptr() != address
    del first
    assert pool.empty_like(LARGE).data_ptr() != address, "a view still refers to it"
    del view
    assert pool.empty_like(LARGE).data_ptr() == address


def test_memory_is_reused_for_the_same_number_of_elements() -> None:
    pool = BufferPool()
    address = pool.empty_like(LARGE).data_ptr()
    smaller = pool.empty_like(LARGE[:2900])
    assert smaller.shape == (2900, 3000)
    assert smaller.data_ptr() != address
    assert pool.empty_like(LARGE.view(-1)).data_ptr() == address


@pytest.mark.parametrize(
    "x",
    [torch.ones(3, 4), LARGE.to(torch.float64), torch.empty(10_000_000, device="meta")],
    ids=["small", "float64", "another device"],
)
def test_other_tensors_are_allocated(x: Tensor) -> None:
    pool = BufferPool()
    found = pool.empty_like(x)
    assert (found.shape, found.dtype, found.device) == (x.shape, x.dtype, x.device)
    assert pool._buffers == []


@pytest.mark.parametrize("name", METHODS)  # ADOM cannot learn classes
def test_no_method_reads_memory_that_is_reused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool fills buffers with NaN, so that reading an old one, or not writing all, shows."""
    data = gs.Digits().load()
    task = gs.Task(data, gs.Iid().make(data.y.numpy(), devices=41, seed=0), gs.Softmax())
    plan = Plan(task, gs.Ring(41), METHODS[name], dtype="float32")
    expected = Simulator(plan)
    expected.advance(8)
    addresses = []
    empty_like = BufferPool.empty_like

    def filled_with_nan(self: BufferPool, x: Tensor) -> Tensor:
        found = empty_like(self, x)
        addresses.append(found.data_ptr())
        return found.fill_(math.nan) if x.is_floating_point() else found

    monkeypatch.setattr(buffers, "_MIN_BYTES", 0)
    monkeypatch.setattr(BufferPool, "empty_like", filled_with_nan)
    simulator = Simulator(plan)
    simulator.advance(8)
    assert torch.equal(simulator.models(), expected.models())
    if name == "d-psgd":
        assert len(addresses) > len(set(addresses)), "no buffer was reused"
