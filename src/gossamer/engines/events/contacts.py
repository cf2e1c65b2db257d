"""Who is in contact in one round of the network, and how long devices and messages take in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gossamer import draws
from gossamer.backend import neighbours
from gossamer.engines.events.batteries import Batteries
from gossamer.engines.plan import Plan
from gossamer.errors import InputError
from gossamer.network.base import BoolArray, FloatArray, IntArray, Links, Network
from gossamer.network.timing import Timing

# Steps of one device per round of the network, at most: more would not end in reasonable time.
_MAX_STEPS = 1_000_000


@dataclass(frozen=True)
class ContactTable:
    """The contacts of one round, as arrays.

    Attributes:
        begin: When the round begins, in seconds.
        end: When it ends.
        order: The order of devices that are due at the same time; it changes by round.
        rank: The place of each device in it.
        step_seconds: How long a step of each device takes.
        active: The devices that do something in this round; None: all.
        first: Where the neighbours of each device begin in `neighbour`, and where the last end.
        neighbour: The neighbours of device 0, then those of device 1, and so on.
        exchange_seconds: How long an exchange with each of them takes.
    """

    begin: float
    end: float
    order: IntArray
    rank: IntArray
    step_seconds: FloatArray
    active: BoolArray | None
    first: IntArray
    neighbour: IntArray
    exchange_seconds: FloatArray

    @classmethod
    def of(cls, source: ContactSource, t: int) -> ContactTable:
        """Return the contacts of a round.

        Args:
            source: The contacts of the run.
            t: The round.
        """
        links = source.links(t)
        order = draws.permutation(links.devices, source.seed, "events/order", t)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        seconds = source.timing.carrying(t, links.a, links.b, source.message_bytes)
        first, neighbour, link = neighbours(links.devices, links.a, links.b)
        return cls(
            begin=t * source.seconds_per_round,
            end=(t + 1) * source.seconds_per_round,
            order=order,
            rank=rank,
            step_seconds=source.step_seconds(t),
            active=links.active,
            first=first,
            neighbour=neighbour,
            exchange_seconds=seconds[link],
        )


class Contacts:
    """The contacts of one round, as lists, which a loop reads faster than arrays.

    Attributes:
        begin: As in `ContactTable`, like all that follow.
        end: When the round ends.
        rank: The order of devices that are due at the same time.
        step_seconds: How long a step of each device takes.
        first: Where the neighbours of each device begin.
        neighbour: The neighbours of all devices.
        exchange_seconds: How long an exchange with each of them takes.
        away: The devices that do nothing in this round.
    """

    def __init__(self, source: ContactSource, t: int) -> None:
        table = ContactTable.of(source, t)
        self.begin = table.begin
        self.end = table.end
        self.rank = table.rank.tolist()
        self.step_seconds = table.step_seconds.tolist()
        self.first = table.first.tolist()
        self.neighbour = table.neighbour.tolist()
        self.exchange_seconds = table.exchange_seconds.tolist()
        self.away: list[int] = []
        if table.active is not None:
            self.away = np.flatnonzero(~table.active).tolist()

    def linked(self, i: int, j: int) -> bool:
        """Return True if two devices are in contact.

        Args:
            i: One device.
            j: The other one.
        """
        return j in self.neighbour[self.first[i] : self.first[i + 1]]


class ContactSource:
    """The contacts and durations of a run.

    Args:
        plan: The run: its network, timing and seed are used, no model and no data.
        message_bytes: Bytes of a message.
        seconds_per_round: How long the links of a round of the network last.

    Raises:
        InputError: If the plan has no timing.
    """

    def __init__(self, plan: Plan, message_bytes: float, seconds_per_round: float) -> None:
        if plan.timing is None:
            accepted = (
                "durations of steps and messages, which the events engine needs, such as "
                "compute = 0.1, rate = 1e6"
            )
            raise InputError("timing", None, accepted)
        self.network: Network = plan.network
        self.timing: Timing = plan.timing
        self.seed = plan.seed
        self.message_bytes = message_bytes
        self.seconds_per_round = seconds_per_round
        self.batteries = Batteries(plan.energy, message_bytes)

        self._last_links: tuple[int, Links] | None = None

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.network.devices

    def links(self, t: int) -> Links:
        """Return the links of a round. Those of the last one that was asked for are kept.

        Args:
            t: The round.
        """
        if self._last_links is None or self._last_links[0] != t:
            self._last_links = (t, self.network.links(t))
        return self._last_links[1]

    def step_seconds(self, t: int) -> FloatArray:
        """Return how long a step of each device takes in a round, after checking it.

        Args:
            t: The round.
        """
        seconds = self.timing.of("compute", t, np.arange(self.devices))
        shortest = float(seconds.min())
        if shortest * _MAX_STEPS < self.seconds_per_round:
            device = int(seconds.argmin())
            accepted = (
                f"at least {self.seconds_per_round / _MAX_STEPS:g} s per step (device {device}, "
                f"round {t}), for at most {_MAX_STEPS:,} steps in the "
                f"{self.seconds_per_round:g} s of a round"
            )
            raise InputError("timing.compute", shortest, accepted)
        return seconds

    def seconds_of(self, t: int, i: int, j: int, size: float) -> float:
        """Return how long a message between two devices takes.

        Args:
            t: The round.
            i: One device.
            j: The other one.
            size: Bytes of the message.
        """
        return float(self.timing.carrying(t, np.array([i]), np.array([j]), size)[0])

    def bytes_sent(self, t: int, i: int, j: int, seconds: float) -> float:
        """Return how many bytes of a message were sent in a contact that was cut.

        Args:
            t: The round in which the contact ended.
            i: One device.
            j: The other one.
            seconds: How long the message had been on its way.
        """
        return float(self.each_sent(t, np.array([i]), np.array([j]), np.array([seconds]))[0])

    def each_sent(self, t: int, i: IntArray, j: IntArray, seconds: FloatArray) -> FloatArray:
        """Return how many bytes of messages were sent in contacts that were cut.

        Args:
            t: The round in which the contacts ended.
            i: One device of each.
            j: The other one.
            seconds: How long the messages had been on their way.
        """
        latency = self.timing.of("latency", t - 1, i, j)
        rate = self.timing.of("rate", t - 1, i, j)
        return np.minimum(np.maximum(0.0, seconds - latency) * rate, self.message_bytes)
