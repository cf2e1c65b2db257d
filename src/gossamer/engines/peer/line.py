"""The way to one neighbour and back: messages in chunks, and never more under way than zenoh's queue for the link holds.

A queue of zenoh's that is full is a trap: the put waits under a lock that holds up all other links, and when it gives up, so
does its link, for minutes. So none is ever full: messages go in chunks, each neighbour has its own sender, and a sender has no
more under way than the queue holds, until the other side says what came. A packet is a chunk, and with it (as zenoh's
"attachment") 16 bytes, four little-endian numbers:

    sequence    counts the packets with a chunk, from 1; in a packet without one, the last
    heard       sequence of the last chunk that came the other way
    offset      where in its message the chunk begins
    size        bytes of the whole message; 0: no chunk, only `heard`
"""

from __future__ import annotations

import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable

HEADER = struct.Struct("<4I")
BATCH, BATCHES = 32_768, 16  # bytes that zenoh sends at once, which must arrive within the lease; and its longest queue
CHUNK = 220_000  # seven batches: while one chunk is answered, the next is under way
_ROOM = 14  # batches that may be under way; the rest is for answers
_ANSWER = 4  # batches after which an answer is due
_STUCK = 20.0  # seconds without an answer, though the link is alive, after which a message is given up


class Line:
    """All about one neighbour: what waits to go there, what is under way, what is coming; and the thread that sends."""

    def __init__(self, put: Callable[[bytes, bytes], None], counts: Counter[str], largest: int, outgoing: int) -> None:
        self.alive = False
        self._put, self._counts, self._largest, self._outgoing = put, counts, largest, outgoing
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._waiting: deque[bytes] = deque()
        self._sent = self._heard = 0  # sequence of the last chunk that was sent, and that came
        self._cut()

    def _cut(self) -> None:
        """Forget what is on its way, both ways."""
        self._message, self._offset = b"", 0  # being sent, and how much of it was
        self._under_way: deque[tuple[int, int]] = deque()  # chunks without an answer yet: sequence, batches
        self._parts: list[bytes] = []  # of a message that is coming
        self._size = self._come = 0
        self._owed = 0  # batches that came since the last answer

    def send(self, message: bytes) -> None:
        with self._changed:
            if not self.alive:
                self._counts["lost"] += 1
                return
            if len(self._waiting) >= self._outgoing:
                self._waiting.popleft()
                self._counts["dropped"] += 1
            self._waiting.append(message)
            self._changed.notify_all()

    def set_alive(self, alive: bool) -> None:
        """The link came or went; what was on it is lost, also when it came without having been seen to go."""
        with self._changed:
            self._counts["lost"] += len(self._waiting) + bool(self._message)
            self._waiting.clear()
            self._cut()
            self.alive = alive and not self._closed
            if self.alive and self._thread is None:
                self._thread = threading.Thread(target=self._work, name="gossamer-link", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def heard(self, chunk: bytes, sequence: int, heard: int, offset: int, size: int) -> bytes | None:
        """Take a packet; a message, if this completes one."""
        with self._changed:
            while self._under_way and self._under_way[0][0] <= heard <= self._sent:
                self._under_way.popleft()
                self._changed.notify_all()
            if size == 0:
                return None
            follows = (sequence, offset, size) == (self._heard + 1, self._come, self._size)
            self._heard = sequence
            self._owed += batches(chunk)
            if self._owed >= _ANSWER:
                self._changed.notify_all()
            if offset == 0:
                self._parts, self._come, self._size = [], 0, size
            if not chunk or offset + len(chunk) > size or size > self._largest or (offset and not follows):
                self._parts, self._come, self._size = [], 0, 0
                self._counts["refused"] += 1
                return None
            self._parts.append(chunk)
            self._come += len(chunk)
            if self._come < size:
                return None
            message = b"".join(self._parts)
            self._parts, self._come, self._size = [], 0, 0
            return message

    def close(self, until: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._message and not self._waiting, max(0.0, until - time.monotonic()))
            self._closed, self.alive = True, False
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while packet := self._next():
            self._put(*packet)

    def _next(self) -> tuple[bytes, bytes] | None:
        """The next packet, as soon as there is one that may go; None at the end."""
        with self._changed:
            stuck = time.monotonic() + _STUCK
            while not self._closed:
                if not self._message and self._waiting:
                    self._message = self._waiting.popleft()
                chunk = self._message[self._offset : self._offset + CHUNK]  # of a small message all: no copy
                if chunk and sum(batches for _, batches in self._under_way) + batches(chunk) <= _ROOM:
                    return chunk, self._went(chunk)
                if self._owed >= _ANSWER:
                    return b"", self._header(0, 0)
                if chunk and time.monotonic() > stuck:
                    self._counts["lost"] += 1
                    self._cut()
                else:
                    self._changed.wait(_STUCK if chunk else None)
            return None

    def _went(self, chunk: bytes) -> bytes:
        """Note that a chunk goes; its header."""
        offset, size = self._offset, len(self._message)
        self._sent += 1
        self._under_way.append((self._sent, batches(chunk)))
        self._offset += len(chunk)
        if self._offset == size:
            self._counts["sent"] += 1
            self._counts["bytes sent"] += size
            self._message, self._offset = b"", 0
            self._changed.notify_all()  # `close` may wait for this
        return self._header(offset, size)

    def _header(self, offset: int, size: int) -> bytes:
        self._owed = 0
        return HEADER.pack(self._sent, self._heard, offset, size)


def batches(chunk: bytes) -> int:
    return 1 + len(chunk) // BATCH
