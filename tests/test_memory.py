"""Memory that is lent again: never while anybody can still read what is in it."""

from __future__ import annotations

import torch

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
