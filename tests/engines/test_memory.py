"""Memory that is lent again: never while anybody can still read what is in it."""

from __future__ import annotations

import math

import pytest
import torch
from support.methods import EVERY, MORE
from torch import Tensor

import gossamer as gs
from gossamer.engines import Plan, Simulator, memory
from gossamer.engines.memory import Spare

LARGE = torch.empty(9_000_000).view(3000, 3000)


def test_what_is_held_is_not_lent_again() -> None:
    spare = Spare()
    first = spare.like(LARGE)
    place, view = first.data_ptr(), first[7].view(-1, 10)
    second = spare.like(LARGE)
    assert second.data_ptr() != place
    del first
    assert spare.like(LARGE).data_ptr() != place, "a view still holds it"
    del view
    assert spare.like(LARGE).data_ptr() == place


def test_each_size_has_its_own() -> None:
    spare = Spare()
    place = spare.like(LARGE).data_ptr()
    other = spare.like(LARGE[:2900])
    assert other.shape == (2900, 3000)
    assert other.data_ptr() != place
    assert spare.like(LARGE.view(-1)).data_ptr() == place


def test_what_is_small_or_not_float32_is_taken_anew() -> None:
    spare = Spare()
    for like in (torch.ones(3, 4), LARGE.to(torch.float64), torch.empty(10_000_000, device="meta")):
        found = spare.like(like)
        assert (found.shape, found.dtype, found.device) == (like.shape, like.dtype, like.device)
    assert spare._lent == []


@pytest.mark.parametrize(
    "name", [name for name in EVERY | MORE if name != "adom"]
)  # which is not for classes
def test_every_method_lets_go_of_its_models_before_they_are_lent(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is lent is spoilt: whoever still reads it, or leaves a part of it as it was, ends elsewhere."""
    data = gs.Digits().load()
    task = gs.Task(data, gs.Iid().make(data.y.numpy(), devices=41, seed=0), gs.Softmax())
    plan = Plan(task, gs.Ring(41), (EVERY | MORE)[name], dtype="float32")
    alone, lent = Simulator(plan), Simulator(plan)
    alone.advance(8)
    places = []

    def spoilt(self: Spare, x: Tensor) -> Tensor:
        found = like(self, x)
        places.append(found.data_ptr())
        return found.fill_(math.nan) if x.is_floating_point() else found

    like = Spare.like
    monkeypatch.setattr(memory, "_LEAST_LENT", 0)
    monkeypatch.setattr(Spare, "like", spoilt)
    lent.advance(8)
    assert torch.equal(lent.models(), alone.models())
    if name == "d-psgd":
        assert len(places) > len(set(places))
