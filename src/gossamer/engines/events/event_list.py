"""What happens to devices, and when: the events of one round of the network, in their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from gossamer.network.base import FloatArray, IntArray

# The kinds of events. Methods with rounds:
ROUND: Final = 0  # a pair, or one device alone, ends a round of its own
# Methods without rounds:
STEP: Final = 1  # a device has computed a gradient
SEND: Final = 2  # a device begins to send
EXCHANGE: Final = 3  # the messages of both devices have arrived
RECEIVE: Final = 4  # the message of device a has arrived at device b
UNDO: Final = 5  # the contact of a device ended before its message had arrived
# Methods that keep messages that were cut:
KEEP: Final = 6  # the message on its way is put aside until the two devices meet again
RESUME: Final = 7  # the message that was kept is on its way again
FORGET: Final = 8  # the message that was kept is given up

Event = tuple[float, int, int, int, int, int]  # a row of EventList


@dataclass(frozen=True)
class EventList:
    """Events in the order of their time.

    Attributes:
        time: When each happens, in seconds since the start; ascending.
        kind: One of the kinds above.
        a: The device, or one of the pair.
        b: The other one of the pair; -1 for a device alone.
        a_count: The number of rounds or steps that device a has ended before; of a SEND, the number
            of messages that it has sent before.
        b_count: The same of device b; 0 if there is none.
        cut_bytes: Bytes that were sent in contacts that were cut.
    """

    time: FloatArray
    kind: IntArray
    a: IntArray
    b: IntArray
    a_count: IntArray
    b_count: IntArray
    cut_bytes: int

    def __len__(self) -> int:
        return len(self.time)

    @classmethod
    def of(cls, events: list[Event], cut_bytes: float) -> EventList:
        """Return a list of events as arrays.

        Args:
            events: The rows, in their order.
            cut_bytes: Bytes that were sent in contacts that were cut.
        """
        columns = list(zip(*events, strict=True)) or [(), (), (), (), (), ()]
        time = np.array(columns[0], dtype=np.float64)
        kind, a, b, a_count, b_count = (np.array(column, dtype=np.int64) for column in columns[1:])
        return cls(time, kind, a, b, a_count, b_count, int(cut_bytes))
