"""Rounds of the network in compiled code; `Timeline` and `BackgroundTimeline` do the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.backend import CompiledTimeline
from gossamer.engines.events.contacts import ContactSource, ContactTable
from gossamer.engines.events.event_list import EventList


def play(
    compiled: CompiledTimeline,
    source: ContactSource,
    table: ContactTable,
    t: int,
    state: dict[str, NDArray[Any]],
    values: dict[str, Any],
    senders: int,
) -> EventList:
    """Return what happens in one round of the network.

    Args:
        compiled: The compiled code.
        source: The contacts of the run.
        table: The contacts of the round.
        t: The round.
        state: The state of the devices, which is overwritten.
        values: What else the code needs to know of the devices.
        senders: How many of the two devices of an exchange send.
    """
    batteries = source.batteries
    contacts = {
        "devices": source.devices,
        "begin": table.begin,
        "end": table.end,
        "seconds": source.seconds_per_round,
        "rank": table.rank,
        "order": table.order,
        "step_seconds": table.step_seconds,
        "active": table.active,
        "first": table.first,
        "neighbour": table.neighbour,
        "exchange_seconds": table.exchange_seconds,
        "full": batteries.full,
        "step_joules": batteries.step,
        "message_joules": batteries.message,
        "charging_seconds": batteries.charging_seconds,
    }
    found = compiled.play(contacts, state, values)
    cuts = (found["cut_a"], found["cut_b"], found["cut_seconds"])
    cut_bytes = 0.0
    if len(cuts[0]):
        # One sum after the other, as the loop in Python adds them up.
        for sent in np.repeat(source.each_sent(t, *cuts), senders).tolist():
            cut_bytes += sent
    return EventList(
        found["time"],
        found["kind"],
        found["a"],
        found["b"],
        found["a_count"],
        found["b_count"],
        int(cut_bytes),
    )
