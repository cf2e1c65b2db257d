"""The channel, the inbox and the choice of links, without a network."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.processes import DEADLINE

from gossamer.fleet.transport.channel import (
    _WINDOW_BATCHES,
    CHUNK_BYTES,
    HEADER,
    QUEUE_ACKS,
    Channel,
    _batches,
)
from gossamer.fleet.transport.inbox import Inbox
from gossamer.fleet.transport.links import Link, choose_link

pytestmark = pytest.mark.slow

CHUNK_BATCHES = 7


def make_channel(
    put: Callable[[bytes, bytes], None] = lambda *_: None, largest: int = 1 << 26, outgoing: int = 4
) -> Channel:
    return Channel(put, largest, outgoing)


def becomes_true(condition: Callable[[], object]) -> bool:
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


packets = st.tuples(
    st.integers(0, 40), st.integers(0, 9), st.integers(0, 9), st.integers(0, 60), st.integers(0, 60)
)


@settings(max_examples=200)
@given(st.lists(packets, max_size=30))
def test_any_packets_are_accepted_or_refused_within_the_largest_size(
    sent: list[tuple[int, int, int, int, int]],
) -> None:
    channel = make_channel(largest=50)
    for length, number, ack, offset, size in sent:
        refused = channel.counts["refused"]
        message = channel.on_packet(bytes(length), number, ack, offset, size)
        if message is not None:
            assert len(message) == size <= 50
            assert channel.counts["refused"] == refused
        assert sum(map(len, channel._chunks)) == channel._received_bytes <= 50


@settings(max_examples=25)
@given(
    st.lists(st.integers(1, 3 * CHUNK_BYTES), min_size=1, max_size=6),
    st.lists(st.integers(1, 9), max_size=6),
)
def test_messages_arrive_complete_and_in_order_and_never_fill_the_queue(
    there: list[int], back: list[int]
) -> None:
    """Two channels are each other's far end; packets wait in a queue until they are delivered."""
    queues: tuple[deque[tuple[bytes, bytes]], ...] = (deque(), deque())
    channels = []
    for queue in queues:
        put = lambda *packet, queue=queue: queue.append(packet)  # noqa: E731
        channels.append(make_channel(put, outgoing=9))
    arrived: tuple[list[bytes], list[bytes]] = ([], [])
    sent = tuple([bytes([i]) * size for i, size in enumerate(sizes)] for sizes in (there, back))
    for channel in channels:
        channel.set_alive(True)

    def deliver() -> bool:
        """Deliver a packet each way; return True once all messages have arrived."""
        for here, queue in enumerate(queues):
            waiting = [len(chunk) for chunk, _ in list(queue)]
            assert sum(_batches(size) for size in waiting if size) <= _WINDOW_BATCHES
            assert waiting.count(0) <= QUEUE_ACKS / 2
            if queue:
                chunk, header = queue.popleft()
                message = channels[1 - here].on_packet(chunk, *HEADER.unpack(header))
                if message is not None:
                    arrived[here].append(message)
        return tuple(map(len, arrived)) == (len(there), len(back))

    try:
        for channel, messages in zip(channels, sent, strict=True):
            for message in messages:
                channel.send(message)
        deadline = time.monotonic() + DEADLINE
        while not deliver():
            assert time.monotonic() < deadline
            time.sleep(0)
        assert tuple(arrived) == sent
    finally:
        for channel in channels:
            channel.close(0)


def test_a_cut_channel_loses_its_messages() -> None:
    sent = threading.Event()
    channel = make_channel(lambda *_: sent.set(), outgoing=2)
    channel.send(b"before it is alive")
    assert channel.counts["lost"] == 1
    channel.set_alive(True)
    channel.send(bytes(20 * CHUNK_BYTES))
    assert sent.wait(DEADLINE)
    for number in range(4):
        channel.send(bytes([number]))
    assert channel.counts["dropped"] == 2
    channel.set_alive(False)
    assert channel.counts["lost"] == 4, "one in flight and two that waited"
    channel.close(0)


@settings(max_examples=50)
@given(
    st.lists(st.one_of(st.just("cut"), st.integers(0, 50), st.integers(0, 2**64 - 1)), max_size=40)
)
def test_guessed_acks_do_not_open_the_window(actions: list[int | str]) -> None:
    """A neighbour that reads nothing guesses acks, and comes and goes on the same link."""
    sent: list[int] = []
    channel = make_channel(lambda chunk, _: sent.append(_batches(len(chunk))), outgoing=2)
    channel.set_alive(True, new_link=True)
    try:
        for action in actions:
            channel.send(bytes(2 * CHUNK_BYTES))
            if action == "cut":
                channel.set_alive(False)
                channel.set_alive(True)
            else:
                channel.on_packet(b"", 0, int(action), 0, 0)
        channel.send(bytes(2 * CHUNK_BYTES))
        assert becomes_true(lambda: sent == [CHUNK_BATCHES] * 2)
        channel.send(b"beyond the window")
        time.sleep(0.01)
        assert sum(sent) == _WINDOW_BATCHES
        channel.set_alive(True, new_link=True)
        channel.send(bytes(CHUNK_BYTES))
        assert becomes_true(lambda: sent == [CHUNK_BATCHES] * 3)
    finally:
        channel.close(0)


def test_a_neighbour_without_acks_is_not_alive_until_it_acknowledges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gossamer.fleet.transport.channel._STUCK_SECONDS", 0.05)
    sent: list[int] = []
    channel = make_channel(lambda _, header: sent.append(HEADER.unpack(header)[0]))
    channel.set_alive(True, new_link=True)
    channel.send(bytes(5 * CHUNK_BYTES))
    channel.send(b"more")
    assert becomes_true(lambda: not channel.alive)
    assert channel.counts["lost"] == 2
    channel.send(b"while it is stuck")
    assert channel.counts["lost"] == 3
    assert len(sent) == 2
    channel.on_packet(b"", 0, sent[-1], 0, 0)
    assert channel.alive
    channel.send(bytes(CHUNK_BYTES))
    assert becomes_true(lambda: len(sent) == 3)
    channel.close(0)


def test_a_link_that_replaces_another_is_recognised() -> None:
    """Whether its begin or the end of the other is reported first."""
    old = Link(1, "a", ("x:1", "y:7447"))
    new = Link(1, "a", ("x:2", "y:7447"))
    thief = Link(1, "b", ("z:1", "y:7447"))
    assert choose_link([], None) is None
    assert choose_link([], old) is None
    assert choose_link([old], None) == old
    assert choose_link([old, new], old) == new
    assert choose_link([new], new) == new
    assert choose_link([old, thief], old) == old
    assert choose_link([thief, new], old) == new
    assert choose_link([thief], old) == thief
    assert choose_link([old], new) == old, "one of two links dialled at once is given up"


def test_waiting_messages_are_bounded_for_each_sender() -> None:
    inbox = Inbox(largest=100, messages=8)
    inbox.put(2, bytes(100))
    for mark, size in ((1, 90), (2, 100), (3, 20), (4, 1)):
        inbox.put(1, bytes([mark]) * size)
    marks = [(sender, message[0]) for sender, message in inbox._queue]
    assert marks == [(2, 0), (1, 2), (1, 3), (1, 4)]
    for mark in range(10, 20):
        inbox.put(1, bytes([mark]))
    marks = [(sender, message[0]) for sender, message in inbox._queue]
    assert marks == [(2, 0), *((1, mark) for mark in range(12, 20))]
    assert inbox.counts["overflow"] == 6
    assert inbox.get(0) == (2, bytes(100))
