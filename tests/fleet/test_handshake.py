"""How two devices agree to meet: every search ends, and no two free neighbours stay alone."""

from __future__ import annotations

from collections import deque

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from gossamer.fleet.protocol.handshake import Handshake
from gossamer.fleet.protocol.messages import Kind, Message


def message(kind: Kind, sender: int, number: int) -> Message:
    return Message(kind, bytes(16), sender, number)


def searching(device: int, numbers: dict[int, int] | None = None) -> Handshake:
    handshake = Handshake(device, numbers or {})
    handshake.begin()
    return handshake


@given(
    devices=st.integers(2, 8),
    density=st.sampled_from([0.3, 0.7, 1.0]),
    seed=st.integers(0, 2**31),
)
def test_the_meetings_are_a_maximal_matching(devices: int, density: float, seed: int) -> None:
    """Whatever the order of messages: both ends agree, and nobody waits for somebody in vain."""
    rng = np.random.default_rng(seed)
    pairs = [(a, b) for a in range(devices) for b in range(a) if rng.random() < density]
    neighbours: dict[int, set[int]] = {i: set() for i in range(devices)}
    for a, b in pairs:
        neighbours[a].add(b)
        neighbours[b].add(a)
    found = [searching(i) for i in range(devices)]
    links: dict[tuple[int, int], deque[Message]] = {}
    met: dict[int, tuple[int, int]] = {}
    for i in range(devices):
        for j in neighbours[i]:
            links.setdefault((i, j), deque()).append(message(Kind.FREE, i, 1))

    def act(i: int) -> None:
        if i in met:
            return
        if sent := found[i].next_message(neighbours[i]):
            kind, (j, number) = sent
            links[i, j].append(message(kind, i, number))
        if meeting := found[i].agreed:
            met[i] = meeting
            found[i].end()
            for j in neighbours[i] - {meeting[0]}:
                links[i, j].append(message(Kind.BUSY, i, 1))

    while waiting := [link for link, queue in links.items() if queue]:
        sender, to = waiting[rng.integers(len(waiting))]
        found[to].note(links[sender, to].popleft())
        act(to)
    for i, (j, number) in met.items():
        assert met[j] == (i, number)
    for a, b in pairs:
        assert a in met or b in met


def test_the_neighbour_not_met_for_longest_is_chosen() -> None:
    handshake = searching(3)
    handshake.last_tried = {1: 7, 5: 4, 6: 9}
    for j in (5, 6):
        handshake.note(message(Kind.FREE, j, 1))
    handshake.note(message(Kind.PROPOSE, 1, 2))
    assert handshake.next_message({1, 5, 6}) == (Kind.PROPOSE, (5, 1))
    assert handshake.next_message({1, 5, 6}) is None, "one proposal at a time"
    handshake.note(message(Kind.BUSY, 5, 1))
    assert handshake.next_message({1, 5, 6}) == (Kind.ACCEPT, (1, 2))
    assert handshake.end() == (1, 2)


def test_a_number_is_larger_than_all_used_at_either_end() -> None:
    handshake = searching(0, {1: 9, 2: 3})
    handshake.note(message(Kind.FREE, 1, 4))
    assert handshake.next_message({1}) == (Kind.PROPOSE, (1, 10))
    later = searching(0, {1: 9})
    later.note(message(Kind.FREE, 1, 40))
    assert later.next_message({1}) == (Kind.PROPOSE, (1, 40))
    asked = searching(2, {1: 9})
    asked.note(message(Kind.PROPOSE, 1, 9))
    assert asked.next_message({1}) is None, "9 is used"


def test_a_number_that_no_message_can_carry_is_ignored() -> None:
    """Otherwise a neighbour could make this device count until a message overflows."""
    handshake = searching(1)
    handshake.note(message(Kind.FREE, 2, (1 << 32) - 1))
    handshake.note(message(Kind.PROPOSE, 0, (1 << 32) - 1))
    assert handshake.next_message({0, 2}) is None


def test_a_proposal_of_an_earlier_search_is_ignored() -> None:
    handshake = Handshake(1, {})
    handshake.note(message(Kind.PROPOSE, 0, 1))
    handshake.begin()
    assert handshake.next_message({0}) is None


def test_a_proposal_to_a_lost_neighbour_is_withdrawn() -> None:
    handshake = searching(0)
    handshake.note(message(Kind.FREE, 1, 1))
    handshake.note(message(Kind.FREE, 2, 1))
    assert handshake.next_message({1, 2}) == (Kind.PROPOSE, (1, 1))
    assert handshake.next_message({2}) == (Kind.PROPOSE, (2, 1))


def test_a_lost_acceptance_shows_in_the_vector() -> None:
    handshake = searching(0)
    handshake.note(message(Kind.FREE, 1, 1))
    assert handshake.next_message({1}) == (Kind.PROPOSE, (1, 1))
    vector = torch.ones(2)
    handshake.note(Message(Kind.MODEL, bytes(16), 1, 1, degree=1, vector=vector))
    assert handshake.agreed == (1, 1)
