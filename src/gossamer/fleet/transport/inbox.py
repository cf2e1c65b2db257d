"""Messages that wait to be received, bounded for each sender."""

from __future__ import annotations

import threading
from collections import Counter, deque


class Inbox:
    """A queue of messages. A flood from one sender does not push out the messages of others.

    Args:
        largest: Largest message in bytes. The messages of one sender have at most twice as many.
        messages: Messages of one sender that may wait; beyond that its oldest is dropped.
    """

    def __init__(self, largest: int, messages: int) -> None:
        self.counts = Counter({"received": 0, "bytes received": 0, "overflow": 0, "refused": 0})
        self._largest = largest
        self._messages = messages
        self._queue: deque[tuple[int, bytes | bytearray]] = deque()
        self._arrived = threading.Condition()

    def put(self, sender: int, message: bytes | bytearray) -> None:
        """Add a message, and drop older messages of its sender beyond the bounds.

        Args:
            sender: The sending device.
            message: The message.
        """
        with self._arrived:
            waiting = [entry for entry in self._queue if entry[0] == sender]
            size = len(message) + sum(len(entry[1]) for entry in waiting)
            while waiting and (size > 2 * self._largest or len(waiting) >= self._messages):
                oldest = waiting.pop(0)
                self._queue.remove(oldest)
                size -= len(oldest[1])
                self.counts["overflow"] += 1
            self._queue.append((sender, message))
            self.counts.update({"received": 1, "bytes received": len(message)})
            self._arrived.notify()

    def get(self, timeout: float) -> tuple[int, bytes | bytearray] | None:
        """Return the oldest message and its sender, or None after a timeout.

        Args:
            timeout: Longest time to wait, in seconds.
        """
        with self._arrived:
            if self._arrived.wait_for(lambda: self._queue, timeout):
                return self._queue.popleft()
            return None

    def refuse(self) -> None:
        """Count a packet that cannot be read."""
        with self._arrived:
            self.counts["refused"] += 1
