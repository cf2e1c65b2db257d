"""The mix of one round for a stack of devices: all of them, or those of a shard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from gossamer.algorithms.base import Neighbours
from gossamer.backend import Block, MixWeights
from gossamer.engines.buffers import BufferPool
from gossamer.engines.shard import LocalWeights, Shard
from gossamer.errors import InputError
from gossamer.mirror import MirrorMap
from gossamer.network.base import FloatArray
from gossamer.network.weights import Weights


@dataclass
class Traffic:
    """The messages that devices receive. A message is one vector from one device to one neighbour.

    Args:
        messages: Number of messages of the run so far.
        bytes: Their size.
        link_bytes: Bytes per link and direction in this round, for the clocks: one number for all
            links, or an array [2, links].
        reduced_bytes: Bytes per device in all-reduces of this round.
        star: True if these went through a server, not around a ring.
    """

    messages: int = 0
    bytes: int = 0
    link_bytes: float | FloatArray = 0.0
    reduced_bytes: int = 0
    star: bool = False

    def start_round(self) -> None:
        """Reset what is counted per round."""
        self.link_bytes = 0.0
        self.reduced_bytes = 0


@dataclass(eq=False)
class StackedMix:
    """`algorithms.Mix` for a stack of devices. Sums are in ascending order of the senders' numbers.

    Args:
        weights: The weights of all devices, or at least of those in the stack.
        devices: Numbers of the devices in the stack.
        itemsize: Bytes per element of a message: that of the models.
        traffic: Counts the messages.
        last_input: Input of the last mix, which shows where a value that is not finite came from.
        previous_weights: Returns the weights of the previous round. None: every device knows
            everything that its neighbours sent before.
        message_bytes: Bytes of a message, and of one to a new neighbour, if it is not the vector.
        shard: The shard that the stack is. None: the stack has all devices.
        local: The weights of that shard.
        buffers: Memory for results.
        products: The weights in the formats of the backend. None: they are made from the weights.
    """

    weights: Weights
    devices: Tensor
    itemsize: int
    traffic: Traffic
    last_input: Tensor | None = None
    previous_weights: Callable[[], Weights] | None = None
    message_bytes: tuple[int, int] | None = None
    shard: Shard | None = None
    local: LocalWeights | None = None
    buffers: BufferPool = field(default_factory=BufferPool)
    products: MixWeights | None = None

    def __post_init__(self) -> None:
        if self.products is None:
            self.products = self._make_products()

    # -- the interface of `Mix` -------------------------------------------------------------------

    @property
    def active(self) -> Tensor | None:
        active = self.weights.active
        if active is None:
            return None
        if self.shard is not None:
            active = active[self.shard.devices]
        return torch.from_numpy(active).to(self.devices.device)

    def __call__(self, x: Tensor, accumulate: torch.dtype | None = None) -> Tensor:
        self.count(x)
        if accumulate in (None, x.dtype):
            return self._linear(x)
        return self._products.sums_in_float64(self._all_rows(x))

    def mean(self, w: Tensor, mirror: MirrorMap) -> Tensor:
        self.count(w)
        if mirror.power is None:
            return mirror.to_primal(self._linear(mirror.to_dual(w)), w.dtype)
        if mirror.power == 1:
            return self._linear(w)
        rows = self._all_rows(w)
        return self._products.power_means(rows, mirror.power, self.buffers.empty_like)

    def neighbours(self, x: Tensor) -> Neighbours:
        self.count(x)
        receiver, sender, weight = self._products.entries()
        rows = self._all_rows(x)
        stacked = x if len(rows) == 1 else torch.cat(rows)
        return Neighbours(receiver, sender, weight.to(x.dtype), stacked[sender])

    def with_message_size(self, message: int, first: int) -> StackedMix:
        return replace(self, message_bytes=(message, first))

    def all_reduce(self, x: Tensor, star: bool = False) -> Tensor | None:
        self.last_input = x
        count = self._active_devices()
        if count == 0:
            return None
        self._count_reduction(count, x[0].numel() * self.itemsize, star)
        active = x if self.active is None else x[self.active]
        if self.shard is None:
            return active.mean(0, keepdim=True)
        return self.shard.exchange.all_reduce(active.sum(0, keepdim=True), "sum") / count

    # -- traffic ----------------------------------------------------------------------------------

    def count(self, x: Tensor) -> None:
        """Count the messages of one mix of x."""
        if not isinstance(x, Tensor) or x.ndim == 0 or len(x) != len(self.devices):
            accepted = f"a tensor with one row for each of {len(self.devices)} devices"
            raise InputError("mix(x): x", list(x.shape) if isinstance(x, Tensor) else x, accepted)
        self.last_input = x
        messages = self.weights.messages
        if self.local is not None:
            messages = int(self.local.arriving.sum())
        self.traffic.messages += messages
        if self.message_bytes is None:
            size = x[0].numel() * self.itemsize
            self.traffic.bytes += messages * size
            self.traffic.link_bytes = self.traffic.link_bytes + size
        else:
            sizes = self._message_sizes(*self.message_bytes)
            counted = sizes if self.local is None else sizes[self.local.arriving]
            self.traffic.bytes += int(counted.sum())
            self.traffic.link_bytes = self.traffic.link_bytes + sizes

    def _message_sizes(self, known: int, first: int) -> FloatArray:
        """Return the bytes per link and direction [2, links] (0: nothing is sent that way)."""
        sent = np.stack([self.weights.value, self.weights.backward]) != 0
        new = np.zeros_like(sent)
        if self.previous_weights is not None:
            new = self.weights.new_since(self.previous_weights())
        return sent * np.where(new, float(first), float(known))

    def _count_reduction(self, count: int, size: int, star: bool) -> None:
        """Count the messages of an all-reduce of `size` bytes among `count` devices."""
        self.traffic.reduced_bytes += size
        self.traffic.star = star
        if self.shard is not None and self.shard.number > 0:
            return  # the first shard counts those of all
        if star:  # every device sends the vector to the server and receives one
            self.traffic.messages += 2 * count
            self.traffic.bytes += 2 * count * size
        else:  # a ring: every device sends 2·(count − 1) messages of 1/count of the vector
            self.traffic.messages += 2 * (count - 1) * count
            self.traffic.bytes += 2 * (count - 1) * size

    def _active_devices(self) -> int:
        """Return how many devices of the network take part in the round."""
        if self.weights.active is None:
            return self.weights.devices
        if self.shard is None:
            return int(self.weights.active.sum())
        own = self.weights.active[self.shard.devices].sum()
        return int(self.shard.sum(np.array([own]))[0])

    # -- rows of other shards ---------------------------------------------------------------------

    def _all_rows(self, x: Tensor) -> list[Tensor]:
        """Return the rows that are mixed: those of the stack, then those of each other shard."""
        return [x, *self._exchange(x)()]

    def _exchange(self, x: Tensor) -> Callable[[], list[Tensor]]:
        """Start to exchange rows. Return a function that waits for those of the other shards."""
        if self.shard is None or self.local is None or not self.local.receive:
            return list
        wait = self.shard.exchange.exchange_rows(x, self.local.send, self.local.receive)
        senders = list(self.local.receive)

        def halo() -> list[Tensor]:
            received = wait()
            return [received[k].to(x.device) for k in senders]

        return halo

    # -- sums -------------------------------------------------------------------------------------

    def _linear(self, x: Tensor) -> Tensor:
        """Return Σ_j a_ij·x_j. Rows of other shards arrive while those of the stack are mixed."""
        halo = self._exchange(x)
        allocate = self.buffers.empty_like
        result = self._products.sums(x.reshape(len(x), -1), allocate=allocate)
        for block, rows in enumerate(halo(), 1):
            flat = rows.reshape(len(rows), -1)
            result = self._products.sums(flat, block, out=result, add=True)
        return result.view_as(x)

    @property
    def _products(self) -> MixWeights:
        assert self.products is not None  # set when the mix is made
        return self.products

    def _make_products(self) -> MixWeights:
        device = self.devices.device
        local = self.local
        if local is not None:
            return MixWeights(len(self.devices), local.matrix, lambda: _shard_blocks(local), device)
        links = len(self.weights.value)
        block = Block(self.weights, self.weights.devices, self.weights.devices + 2 * links)
        return MixWeights(len(self.devices), self.weights, lambda: [block], device)


def _shard_blocks(local: LocalWeights) -> list[Block]:
    blocks = []
    for matrix in local.blocks():
        blocks.append(Block(matrix, matrix.columns, len(matrix.value)))
    return blocks
