"""The way to one neighbour and back: messages in chunks, and never more under way than zenoh's queue for the link holds.

A queue of zenoh's that is full is a trap: the put waits under a lock that holds up all other links, and when it gives up, so
does its link, for minutes. So none is ever full, whatever the neighbour does: each has its own sender, messages go in chunks,
and no more are under way than the queue holds until the other side says what came. A packet is a chunk, and with it (as zenoh's
"attachment") 24 bytes, little-endian:

    number    8 bytes    of the chunk: the lower half counts from 1, the upper is random, so that only who has it can answer
    heard     8 bytes    number of the last chunk that came the other way
    offset    4 bytes    where in its message the chunk begins
    size      4 bytes    of the whole message; 0: no chunk and no number, only an answer

All chunks of a message but the last have `CHUNK` bytes. An answer is due when `_ANSWER` batches have come, unless a chunk that
goes the other way has said it by then. It has a queue of its own, so that it overtakes chunks; should that be full, which only
one who floods and hears nothing can bring about, it is dropped: so an answer waits for nobody.
"""

from __future__ import annotations

import secrets
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable

HEADER = struct.Struct("<QQII")
BATCH, BATCHES = (
    65_535,
    16,
)  # bytes that zenoh sends at once, which must arrive within the lease; and its longest queue
CHUNK = 450_000  # seven batches: while one chunk is answered, the next is under way
ANSWERS = 8  # that may be queued; four would do
_FULL = 65_000  # bytes of a chunk in a batch; the rest is zenoh's own
_ROOM = 14  # batches that may be under way: the queue gets one back a little after it was sent
_ANSWER = 4
_STUCK = (
    20.0  # seconds without an answer, though the link is alive, after which there is nobody to hear
)


class Line:
    """All about one neighbour: what waits to go there, what is under way, what is coming; and the thread that sends.

    `put(chunk, header)` hands over a packet, always in that thread; without a chunk it is an answer.
    """

    def __init__(self, put: Callable[[bytes, bytes], None], largest: int, outgoing: int) -> None:
        # All are there from the start: others may read them at any time.
        self.counts = Counter({"sent": 0, "bytes sent": 0, "lost": 0, "dropped": 0, "refused": 0})
        self._put, self._largest, self._outgoing = put, largest, outgoing
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._linked = self._deaf = self._closed = False
        self._waiting: deque[bytes] = deque()
        self._message, self._offset = b"", 0  # being sent, and how much of it was
        self._sent = self._heard = (
            0  # number of the last chunk that was sent (its lower half), and that came
        )
        self._under_way: deque[tuple[int, int]] = (
            deque()
        )  # chunks without an answer yet: number, batches
        self._moved = 0.0  # when a chunk or an answer last did
        self._owed = 0  # batches that came since the last answer
        self._parts: list[bytes] = []  # of a message that is coming
        self._size = self._come = 0

    @property
    def alive(self) -> bool:
        return self._linked and not self._deaf and not self._closed

    def send(self, message: bytes) -> None:
        with self._changed:
            if not self.alive:
                self.counts["lost"] += 1
                return
            if len(self._waiting) >= self._outgoing:
                self._waiting.popleft()
                self.counts["dropped"] += 1
            self._waiting.append(message)
            self._changed.notify_all()

    def set_alive(self, alive: bool, new_link: bool = False) -> None:
        """The neighbour came or went: what was to be said is lost. What is queued on a link stays so until that link ends."""
        with self._changed:
            self._lose()
            self._forget()
            if (
                new_link or self._deaf
            ):  # one that was deaf and is back has another try; so a liar can fill a queue, but seldom
                self._under_way.clear()
                self._owed, self._deaf = 0, False
            self._linked = alive
            if self.alive and self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="gossamer-link", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def heard(
        self, chunk: bytes, number: int, heard: int, offset: int, size: int
    ) -> bytearray | None:
        """Take a packet; a message, if this completes one."""
        with self._changed:
            self._answered(heard)
            if size == 0:
                return None
            self._owed += _batches(len(chunk))
            if self._owed >= _ANSWER:
                self._changed.notify_all()
            return self._taken(chunk, number, offset, size)

    def close(self, until: float) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: not self._message and not self._waiting, max(0.0, until - time.monotonic())
            )
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    # -- to the neighbour ------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while packet := self._next():
            self._put(*packet)

    def _next(self) -> tuple[bytes, bytes] | None:
        """The next packet, as soon as there is one that may go; None at the end."""
        with self._changed:
            while not self._closed:
                if self._owed >= _ANSWER:
                    return b"", self._header(0, 0, 0)
                if not self._message and self._waiting:
                    self._message, self._offset, self._moved = (
                        self._waiting.popleft(),
                        0,
                        time.monotonic(),
                    )
                batches = _batches(min(CHUNK, len(self._message) - self._offset))
                if not self._message:
                    self._changed.wait()
                elif sum(count for _, count in self._under_way) + batches <= _ROOM:
                    return self._went(batches)
                elif not self._changed.wait(max(0.0, self._moved + _STUCK - time.monotonic())):
                    self._deaf = True
                    self._lose()
            return None

    def _went(self, batches: int) -> tuple[bytes, bytes]:
        """Note that a chunk goes; the packet."""
        offset, size = self._offset, len(self._message)
        chunk = self._message[offset : offset + CHUNK]  # of a small message all: no copy
        self._sent = (self._sent + 1) % (1 << 32)
        number = self._sent | secrets.randbits(32) << 32
        self._under_way.append((number, batches))
        self._offset, self._moved = offset + len(chunk), time.monotonic()
        if self._offset == size:
            self.counts.update({"sent": 1, "bytes sent": size})
            self._message = b""
            self._changed.notify_all()  # `close` may wait for this
        return chunk, self._header(number, offset, size)

    def _header(self, number: int, offset: int, size: int) -> bytes:
        self._owed = 0
        return HEADER.pack(number, self._heard, offset, size)

    def _answered(self, heard: int) -> None:
        if any(number == heard for number, _ in self._under_way):
            while self._under_way.popleft()[0] != heard:
                pass
            self._moved, self._deaf = time.monotonic(), False
            self._changed.notify_all()

    def _lose(self) -> None:
        self.counts["lost"] += len(self._waiting) + bool(self._message)
        self._waiting.clear()
        self._message = b""
        self._changed.notify_all()

    # -- from the neighbour ----------------------------------------------------------------------------------------

    def _taken(self, chunk: bytes, number: int, offset: int, size: int) -> bytearray | None:
        follows = (offset, size) == (self._come, self._size) and (number - self._heard) % (
            1 << 32
        ) == 1
        self._heard = number
        if (
            size > self._largest
            or len(chunk) != min(CHUNK, size - offset)
            or not (offset == 0 or follows)
        ):
            self._forget()
            self.counts["refused"] += 1
            return None
        if offset == 0:
            self._forget()
            self._size = size
        self._parts.append(chunk)
        self._come += len(chunk)
        if self._come < size:
            return None
        message = bytearray().join(self._parts)  # the receiver's own: it can use it as it is
        self._forget()
        return message

    def _forget(self) -> None:
        """Forget what has come of a message that is not whole."""
        self._parts, self._size, self._come = [], 0, 0


def _batches(size: int) -> int:
    return 1 + size // _FULL
