"""The channel to one neighbour: messages in chunks, with a window that never fills zenoh's queue.

A full queue in zenoh is costly: the put blocks while it holds a lock that all links share, and when
it gives up, it closes its link for minutes. The window prevents this whatever the neighbour does:
each channel has its own sender thread, messages go out in chunks, and no more chunks are in flight
than the queue holds until the receiver acknowledges them. A packet is a chunk with a header of
24 bytes (zenoh's "attachment"), little-endian:

    number    8 bytes    number of the chunk: the lower half counts from 1, the upper half is
                         random, so that only the receiver of the chunk can acknowledge it
    ack       8 bytes    number of the last chunk received in the other direction
    offset    4 bytes    position of the chunk in its message
    size      4 bytes    size of the whole message; 0: this packet is an ack without a chunk

All chunks of a message but the last have `CHUNK_BYTES` bytes. An ack is due after `_ACK_AFTER`
batches, unless a chunk in the other direction has carried it by then. Acks have their own queue and
overtake chunks. Only a peer that floods without reading can fill that queue; its acks are then
dropped, so sending an ack never blocks.
"""

from __future__ import annotations

import secrets
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable

HEADER = struct.Struct("<QQII")
BATCH_BYTES = 65_535  # bytes that zenoh sends at once; a batch must arrive within the lease
QUEUE_BATCHES = 16  # zenoh's longest queue
CHUNK_BYTES = 450_000  # seven batches: while one chunk is acknowledged, the next is in flight
QUEUE_ACKS = 8  # acks that may be queued; four suffice
_CHUNK_BYTES_PER_BATCH = 65_000  # the rest of a batch is zenoh's own
# Most batches in flight: the queue regains a slot a little after its batch is sent.
_WINDOW_BATCHES = 14
_ACK_AFTER = 4  # batches
_STUCK_SECONDS = (
    20.0  # without an ack, on a link that is alive, until the neighbour counts as stuck
)


class Channel:
    """Send messages to one neighbour, and reassemble those that it sends.

    Args:
        put: Called in the channel's own thread with (chunk, header); an empty chunk is an ack.
        largest: Largest message to accept, in bytes.
        outgoing: Messages that may wait to be sent; beyond that the oldest is dropped.
    """

    def __init__(self, put: Callable[[bytes, bytes], None], largest: int, outgoing: int) -> None:
        # Every key is present from the start, since other threads may iterate at any time.
        self.counts = Counter({"sent": 0, "bytes sent": 0, "lost": 0, "dropped": 0, "refused": 0})
        self._put = put
        self._largest = largest
        self._outgoing = outgoing
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._linked = False
        self._stuck = False
        self._closed = False
        # Sending.
        self._waiting: deque[bytes] = deque()
        self._message = b""  # being sent
        self._offset = 0  # bytes of it that are sent
        self._last_sent = 0  # lower half of the number of the last chunk sent
        self._in_flight: deque[tuple[int, int]] = deque()  # unacknowledged: number, batches
        self._last_progress = 0.0  # time of the last chunk or ack
        # Receiving.
        self._last_received = 0  # number of the last chunk received
        self._unacknowledged = 0  # batches received since the last ack
        self._chunks: list[bytes] = []  # chunks of an incomplete message
        self._received_bytes = 0  # bytes received of the incomplete message
        self._size = 0  # size of the complete message

    @property
    def alive(self) -> bool:
        """True if messages can be sent."""
        return self._linked and not self._stuck and not self._closed

    def send(self, message: bytes) -> None:
        """Queue a message; it is lost if the channel is not alive.

        Args:
            message: The message.
        """
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
        """Note that the neighbour came or went. Messages that wait to be sent are lost.

        Args:
            alive: True if the neighbour can be reached.
            new_link: True if it is reached over another link than before. Chunks stay in flight
                until their own link ends.
        """
        with self._changed:
            self._discard_outgoing()
            self._discard_incoming()
            # A stuck neighbour that comes back gets another try. A lying neighbour can fill a queue
            # in this way, but rarely.
            if new_link or self._stuck:
                self._in_flight.clear()
                self._unacknowledged = 0
                self._stuck = False
            self._linked = alive
            if self.alive and self._thread is None:
                self._thread = threading.Thread(
                    target=self._send_packets, name="gossamer-link", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def on_packet(
        self, chunk: bytes, number: int, ack: int, offset: int, size: int
    ) -> bytearray | None:
        """Accept a packet from the neighbour.

        Args:
            chunk: The payload.
            number: Number of the chunk, from the header.
            ack: Number of the last chunk that the neighbour received.
            offset: Position of the chunk in its message.
            size: Size of the message; 0 for an ack.

        Returns:
            The message, if this packet completes one.
        """
        with self._changed:
            self._acknowledge(ack)
            if size == 0:
                return None
            self._unacknowledged += _batches(len(chunk))
            if self._unacknowledged >= _ACK_AFTER:
                self._changed.notify_all()
            return self._append(chunk, number, offset, size)

    def close(self, until: float) -> None:
        """Send what is queued, then end the thread.

        Args:
            until: When to give up, by the monotonic clock.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: not self._message and not self._waiting, max(0.0, until - time.monotonic())
            )
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    # -- sending -----------------------------------------------------------------------------------

    def _send_packets(self) -> None:
        while packet := self._next_packet():
            self._put(*packet)

    def _next_packet(self) -> tuple[bytes, bytes] | None:
        """Wait for a packet that may be sent; return None once the channel is closed."""
        with self._changed:
            while not self._closed:
                if self._unacknowledged >= _ACK_AFTER:
                    return b"", self._header(0, 0, 0)
                if not self._message and self._waiting:
                    self._message = self._waiting.popleft()
                    self._offset = 0
                    self._last_progress = time.monotonic()
                if not self._message:
                    self._changed.wait()
                    continue
                batches = _batches(min(CHUNK_BYTES, len(self._message) - self._offset))
                in_flight = sum(count for _, count in self._in_flight)
                if in_flight + batches <= _WINDOW_BATCHES:
                    return self._next_chunk(batches)
                patience = self._last_progress + _STUCK_SECONDS - time.monotonic()
                if not self._changed.wait(max(0.0, patience)):
                    self._stuck = True
                    self._discard_outgoing()
            return None

    def _next_chunk(self, batches: int) -> tuple[bytes, bytes]:
        """Return the next chunk and its header, and count it as in flight."""
        offset = self._offset
        size = len(self._message)
        chunk = self._message[offset : offset + CHUNK_BYTES]  # a small message is not copied
        self._last_sent = (self._last_sent + 1) % (1 << 32)
        number = self._last_sent | secrets.randbits(32) << 32
        self._in_flight.append((number, batches))
        self._offset = offset + len(chunk)
        self._last_progress = time.monotonic()
        if self._offset == size:
            self.counts.update({"sent": 1, "bytes sent": size})
            self._message = b""
            self._changed.notify_all()  # `close` may wait for this
        return chunk, self._header(number, offset, size)

    def _header(self, number: int, offset: int, size: int) -> bytes:
        self._unacknowledged = 0
        return HEADER.pack(number, self._last_received, offset, size)

    def _acknowledge(self, ack: int) -> None:
        if any(number == ack for number, _ in self._in_flight):
            while self._in_flight.popleft()[0] != ack:
                pass
            self._last_progress = time.monotonic()
            self._stuck = False
            self._changed.notify_all()

    def _discard_outgoing(self) -> None:
        self.counts["lost"] += len(self._waiting) + bool(self._message)
        self._waiting.clear()
        self._message = b""
        self._changed.notify_all()

    # -- receiving ---------------------------------------------------------------------------------

    def _append(self, chunk: bytes, number: int, offset: int, size: int) -> bytearray | None:
        """Append a chunk to the incomplete message; return the message once it is complete."""
        consecutive = (number - self._last_received) % (1 << 32) == 1
        continues = consecutive and (offset, size) == (self._received_bytes, self._size)
        self._last_received = number
        wrong_length = len(chunk) != min(CHUNK_BYTES, size - offset)
        if size > self._largest or wrong_length or not (offset == 0 or continues):
            self._discard_incoming()
            self.counts["refused"] += 1
            return None
        if offset == 0:
            self._discard_incoming()
            self._size = size
        self._chunks.append(chunk)
        self._received_bytes += len(chunk)
        if self._received_bytes < size:
            return None
        message = bytearray().join(self._chunks)  # writable, so the receiver needs no copy
        self._discard_incoming()
        return message

    def _discard_incoming(self) -> None:
        self._chunks = []
        self._received_bytes = 0
        self._size = 0


def _batches(size: int) -> int:
    return 1 + size // _CHUNK_BYTES_PER_BATCH
