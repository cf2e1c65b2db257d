"""Everything for which Ray and torch.distributed have no public API, in one place.

Tested with ray 2.60.0 and torch 2.13.0. After an upgrade of either, run `pytest tests/engines
-m cluster`: each function below is used by these tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import ray
import torch
from torch import Tensor

dist: Any = torch.distributed  # most of it has no type annotations

# `ray.init` has no documented argument for the address that a local cluster listens on.
LISTEN_ON_LOOPBACK: dict[str, Any] = {"_node_ip_address": "127.0.0.1"}


@contextmanager
def no_ray_messages() -> Iterator[None]:
    """Keep Ray from printing to stdout what becomes of its processes.

    `log_to_driver=False` switches off the logs of workers only. Messages of the raylet, for example
    that a worker died, are still printed to stdout, where the results of a command go. The engine
    reports lost shards itself.
    """
    worker = ray._private.worker
    original = worker.print_to_stdstream
    worker.print_to_stdstream = lambda *args, **kwargs: None
    try:
        yield
    finally:
        worker.print_to_stdstream = original


class GlooGroup:
    """A gloo process group that listens on a given address.

    `torch.distributed.init_process_group` accepts the name of a network interface
    (`GLOO_SOCKET_IFNAME`), but not an address. Ray knows the address of a node; Python's standard
    library has no portable way to find the interface that has it.

    Args:
        store: A `torch.distributed` store that all processes of the group share.
        rank: Number of this process.
        size: Number of processes.
        host: Address to listen on.
        timeout: Seconds after which an operation fails.
    """

    def __init__(self, store: Any, rank: int, size: int, host: str, timeout: float) -> None:
        options = dist.ProcessGroupGloo._Options()
        options._timeout = timedelta(seconds=timeout)
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]
        self._group = dist.ProcessGroupGloo(store, rank, size, options)
        self.rank = rank
        self.size = size

    def send(self, x: Tensor, rank: int, tag: int) -> Any:
        """Start to send a tensor; the result has a method `wait`."""
        return self._group.send([x], rank, tag)

    def receive(self, x: Tensor, rank: int, tag: int) -> Any:
        """Start to receive into a tensor; the result has a method `wait`."""
        return self._group.recv([x], rank, tag)

    def all_gather(self, results: list[Tensor], x: Tensor) -> Any:
        """Start to gather the tensors of all processes; the result has a method `wait`."""
        return self._group.allgather([results], [x])
