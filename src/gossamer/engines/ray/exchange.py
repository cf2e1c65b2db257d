"""Exchange of rows between the shards of a cluster: gloo, and shared memory within one machine.

Gloo copies every byte four times over the loopback interface. Shared memory is written once and
read in place; gloo then only carries the notice that the rows are there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor

from gossamer.engines.ray.adapter import GlooGroup
from gossamer.engines.ray.shared_memory import SharedBuffer, buffer_path
from gossamer.engines.shard import Reduction
from gossamer.network.base import IntArray

_NOTICE = 0  # tag of a notice: the generation of the shared buffer that holds the rows, or _BY_GLOO
_ROWS = 1  # tag of rows that follow a notice
_BY_GLOO = 0
_HEADROOM = 1.25  # a buffer is made larger than the message, which varies from round to round


class Disconnected(Exception):
    """Another shard does not answer."""


class Waiting:
    """Whether a shard waits for others, and since when. Another thread may read it."""

    def __init__(self) -> None:
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds since the shard began to wait; 0 if it does not."""
        since = self._since
        if since is None:
            return 0.0
        return time.monotonic() - since

    @contextmanager
    def for_others(self) -> Iterator[None]:
        """Wait in this block."""
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._since = None


class GlooExchange:
    """`gossamer.engines.shard.Exchange` between the shards of a group.

    Args:
        group: The process group.
        machines: Machine identifier per shard (see `machine_id`).
        name: Name of the group, which its shared buffers carry.
        waiting: Shows when this shard waits for others.
        dtype: Type in which rows of models are sent; None: as they are.
    """

    def __init__(
        self,
        group: GlooGroup,
        machines: list[str],
        name: str,
        waiting: Waiting | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self._group = group
        self._dtype = dtype
        self._waiting = waiting or Waiting()
        self._name = name
        self._same_machine = _others_on_machine(machines, group.rank)
        self._sent: dict[int, SharedBuffer] = {}
        self._received: dict[int, SharedBuffer] = {}
        self._messages: dict[int, int] = {}  # exchanged so far, per shard

    def exchange_rows(
        self, x: Tensor, send: dict[int, IntArray], receive: dict[int, int]
    ) -> Callable[[], dict[int, Tensor]]:
        sent = x[:0]  # type and row shape of what is sent
        if self._dtype is not None and x.is_floating_point() and x.ndim > 1:
            sent = sent.to(self._dtype)
        notices = {}
        expected_notices = {}
        for k in receive:
            notices[k] = torch.empty(1, dtype=torch.int64)
            expected_notices[k] = self._begin(self._group.receive, notices[k], k, _NOTICE)
        pending_sends: list[Any] = []
        for k, rows in send.items():
            pending_sends += self._send_rows(x, k, torch.from_numpy(rows), sent)

        def wait_for_rows() -> dict[int, Tensor]:
            received = {}
            for k, count in receive.items():
                self._wait(expected_notices[k])
                rows = self._receive_rows(sent, k, count, int(notices[k]))
                received[k] = rows.to(x.dtype)
                # Double buffering: k's notice for this message implies that k has finished reading
                # the message before the previous one, whose slot the next message overwrites.
                self._messages[k] = self._messages.get(k, 0) + 1
            for work in pending_sends:
                self._wait(work)
            return received

        return wait_for_rows

    def all_reduce(self, x: Tensor, operation: Reduction) -> Tensor:
        reduced = torch.empty_like(x, device="cpu", memory_format=torch.contiguous_format)
        reduced.copy_(x)
        self._wait(self._begin(self._group.all_reduce, reduced, operation))
        return reduced.to(x.device)

    def _begin(self, operation: Callable[..., Any], *arguments: Any) -> Any:
        """Begin an operation of the group; the first one with a shard connects to it."""
        try:
            with self._waiting.for_others():
                return operation(*arguments)
        except RuntimeError as error:
            raise Disconnected(str(error).splitlines()[0]) from None

    def _wait(self, work: Any) -> None:
        try:
            with self._waiting.for_others():
                work.wait()
        except RuntimeError as error:  # the connection was reset, or the group's timeout expired
            raise Disconnected(str(error).splitlines()[0]) from None

    def _send_rows(self, x: Tensor, k: int, rows: Tensor, like: Tensor) -> list[Any]:
        """Start to send rows of x to shard k. Return the operations to wait for.

        Args:
            x: The rows of this shard.
            k: The other shard.
            rows: Which of them.
            like: A tensor with the type and row shape of what is sent.
        """
        size = len(rows) * math.prod(x.shape[1:]) * like.element_size()
        if size == 0:
            return [self._begin(self._group.send, torch.tensor([_BY_GLOO]), k, _NOTICE)]
        buffer = self._buffer_for(k, size)
        if buffer is None:
            notice = torch.tensor([_BY_GLOO])
            copied = x.index_select(0, rows.to(x.device)).to("cpu", like.dtype)
            return [
                self._begin(self._group.send, notice, k, _NOTICE),
                self._begin(self._group.send, copied, k, _ROWS),
            ]
        slot = buffer.rows(self._messages.get(k, 0), len(rows), like)
        if x.device.type == "cpu" and like.dtype == x.dtype:
            torch.index_select(x, 0, rows, out=slot)
        else:
            slot.copy_(x.index_select(0, rows.to(x.device)))
        notice = torch.tensor([buffer.generation])
        return [self._begin(self._group.send, notice, k, _NOTICE)]

    def _receive_rows(self, like: Tensor, k: int, count: int, generation: int) -> Tensor:
        """Return the rows that shard k announced: a new tensor, or a view of a shared buffer."""
        if generation == _BY_GLOO:
            rows = torch.empty((count, *like.shape[1:]), dtype=like.dtype)
            if rows.numel():
                self._wait(self._begin(self._group.receive, rows, k, _ROWS))
            return rows
        buffer = self._received.get(k)
        if buffer is None or buffer.generation != generation:
            path = buffer_path(self._name, k, self._group.rank, generation)
            buffer = SharedBuffer.open(path, generation)
            self._received[k] = buffer
        return buffer.rows(self._messages.get(k, 0), count, like)

    def _buffer_for(self, k: int, size: int) -> SharedBuffer | None:
        """Return a shared buffer for a message to shard k, or None if gloo has to carry it."""
        if k not in self._same_machine:
            return None
        buffer = self._sent.get(k)
        if buffer is not None and buffer.slot_bytes >= size:
            return buffer
        generation = 1
        if buffer is not None:
            generation = buffer.generation + 1
        path = buffer_path(self._name, self._group.rank, k, generation)
        with suppress(OSError):  # not enough shared memory: fall back to gloo
            self._sent[k] = SharedBuffer.create(path, int(size * _HEADROOM), generation)
            return self._sent[k]
        return None


def _others_on_machine(machines: list[str], rank: int) -> set[int]:
    """Return the other processes that can share memory with this one."""
    others = set()
    for k, machine in enumerate(machines):
        if k != rank and machine and machine == machines[rank]:
            others.add(k)
    return others
