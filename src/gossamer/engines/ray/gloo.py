"""Rows between the processes of a cluster: by gloo, and between those of one machine through memory that they share.

Gloo over loopback copies every byte four times; memory that both have mapped is written once and read where it is. What
then goes by gloo is a number that says that it is there.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gossamer.network.base import IntArray

dist: Any = torch.distributed  # which says little of its own types

_SHARED = Path("/dev/shm")


class Apart(Exception):
    """Another process does not answer."""


def machine() -> str:
    """A name for what processes must have in common to share memory; empty where they cannot."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}-{_SHARED.stat().st_dev}"
    except OSError:
        return ""


class Gloo:
    """`part.Exchange` between the processes of a group. `machines`: where each is; `name`: what their memory is called."""

    def __init__(
        self, store: Any, number: int, machines: list[str], host: str, name: str, seconds: float
    ) -> None:
        options = dist.ProcessGroupGloo._Options()
        options._timeout = timedelta(seconds=seconds)
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]
        self._number, self._count, self._name = number, len(machines), name
        self._group = dist.ProcessGroupGloo(store, number, self._count, options)
        self._near = {
            k
            for k, where in enumerate(machines)
            if k != number and where and where == machines[number]
        }
        self._sent: dict[int, _Shared] = {}
        self._received: dict[int, _Shared] = {}
        self._turn: dict[int, int] = {}

    def swap(
        self, x: Tensor, wanted: dict[int, IntArray], needed: dict[int, int]
    ) -> Callable[[], dict[int, Tensor]]:
        width, waiting = x[0].numel() * x.element_size(), []
        told, calls = {}, {}
        for k in needed:
            told[k] = torch.empty(1, dtype=torch.int64)
            calls[k] = self._group.recv([told[k]], k, 0)
        for k, rows in wanted.items():
            chosen, turn = torch.from_numpy(rows), self._turn.get(k, 0)
            memory = self._room(k, len(rows) * width) if k in self._near else None
            if memory is None:  # another machine's, or no room here
                waiting += [
                    self._group.send([torch.zeros(1, dtype=torch.int64)], k, 0),
                    self._group.send([x.index_select(0, chosen.to(x.device)).cpu()], k, 1),
                ]
            else:
                place = memory.rows(turn, len(rows), x)
                if x.device.type == "cpu":
                    torch.index_select(x, 0, chosen, out=place)
                else:
                    place.copy_(x.index_select(0, chosen.to(x.device)))
                waiting.append(self._group.send([torch.tensor([memory.edition])], k, 0))

        def receive() -> dict[int, Tensor]:
            received = {}
            for k, count in needed.items():
                _done(calls[k])
                edition, turn = int(told[k]), self._turn.get(k, 0)
                if edition == 0:
                    received[k] = torch.empty((count, *x.shape[1:]), dtype=x.dtype)
                    _done(self._group.recv([received[k]], k, 1))
                else:
                    if k not in self._received or self._received[k].edition != edition:
                        self._received[k] = _Shared.opened(
                            self._path(k, self._number, edition), edition
                        )
                    received[k] = self._received[k].rows(turn, count, x)
                # Two places take turns. That k has told of this one means that it is done with the last but one.
                self._turn[k] = turn + 1
            for work in waiting:
                _done(work)
            return received

        return receive

    def gather(self, x: Tensor) -> list[Tensor]:
        received = [torch.empty_like(x) for _ in range(self._count)]
        _done(self._group.allgather([received], [x.contiguous()]))
        return received

    def _room(self, k: int, size: int) -> _Shared | None:
        """Memory for a message to k: what there is, or more of it if that is too small."""
        memory = self._sent.get(k)
        if memory is None or memory.size < size:
            edition = 1 if memory is None else memory.edition + 1
            with suppress(OSError):  # no room: by gloo then
                self._sent[k] = memory = _Shared.made(
                    self._path(self._number, k, edition), size + size // 4, edition
                )
        return memory if memory is not None and memory.size >= size else None

    def _path(self, sender: int, receiver: int, edition: int) -> Path:
        return _SHARED / f"{self._name}-{sender}-{receiver}-{edition}"


class _Shared:
    """Memory that two processes have mapped, with two places for a message. Its file is gone once both have it."""

    def __init__(self, handle: int, edition: int) -> None:
        try:
            self._memory = mmap.mmap(handle, 0)
        finally:
            os.close(handle)
        self.size, self.edition = len(self._memory) // 2, edition

    @classmethod
    def made(cls, path: Path, size: int, edition: int) -> _Shared:
        size = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.posix_fallocate(
                handle, 0, 2 * size
            )  # taken now, or refused now: a fault later would end the process
        except OSError:
            os.close(handle)
            path.unlink()
            raise
        return cls(handle, edition)

    @classmethod
    def opened(cls, path: Path, edition: int) -> _Shared:
        shared = cls(os.open(path, os.O_RDWR), edition)
        path.unlink()
        return shared

    def rows(self, turn: int, count: int, like: Tensor) -> Tensor:
        """A message's place, as rows of the shape and type of another tensor's."""
        width = like[0].numel()
        flat = torch.frombuffer(
            self._memory, dtype=like.dtype, count=count * width, offset=turn % 2 * self.size
        )
        return flat.view(count, *like.shape[1:])


def forget(name: str) -> None:
    """Remove what a group that was killed may have left on this machine."""
    for path in _SHARED.glob(f"{name}-*"):
        with suppress(OSError):
            path.unlink()


def _done(work: Any) -> None:
    try:
        work.wait()
    except (
        RuntimeError
    ) as error:  # a connection that was reset, or no answer within the group's limit
        raise Apart(str(error).splitlines()[0]) from None
