"""Compiled timelines of the events engine (kernels_events.h), called through ctypes.

They compute the same as the loops of `gossamer.engines.events`, bit for bit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gossamer.backend import loader
from gossamer.backend.exact import compiled_function

Arrays = dict[str, NDArray[Any]]

_POINTER = ctypes.c_void_p
_INT64 = ctypes.c_int64
_DOUBLE = ctypes.c_double
_EVENTS_PER_DEVICE = 4  # initial size of the buffers, which grow
_ENTRY_BYTES = 16  # size of an entry of the queue


class _Round(ctypes.Structure):
    """EventRound of kernels_events.h."""

    _fields_ = (
        ("devices", _INT64),
        ("begin", _DOUBLE),
        ("end", _DOUBLE),
        ("seconds", _DOUBLE),
        ("rank", _POINTER),
        ("order", _POINTER),
        ("step_seconds", _POINTER),
        ("active", _POINTER),
        ("first", _POINTER),
        ("neighbour", _POINTER),
        ("exchange_seconds", _POINTER),
        ("full", _DOUBLE),
        ("step_joules", _DOUBLE),
        ("message_joules", _DOUBLE),
        ("charging_seconds", _DOUBLE),
        ("capacity", _INT64),
        ("count", _INT64),
        ("time", _POINTER),
        ("kind", _POINTER),
        ("a", _POINTER),
        ("b", _POINTER),
        ("a_count", _POINTER),
        ("b_count", _POINTER),
        ("cuts", _INT64),
        ("cut_a", _POINTER),
        ("cut_b", _POINTER),
        ("cut_seconds", _POINTER),
        ("queue_capacity", _INT64),
        ("queued", _INT64),
        ("queue", _POINTER),
        ("full_up", _INT64),
    )


class _PairDevices(ctypes.Structure):
    """PairDevices of kernels_events.h."""

    _fields_ = (
        ("phase", _POINTER),
        ("due", _POINTER),
        ("since", _POINTER),
        ("partner", _POINTER),
        ("rounds", _POINTER),
        ("joules", _POINTER),
        ("wait_seconds", _POINTER),
        ("waiting", _INT64),
        ("waits", _POINTER),
    )


class _BackgroundDevices(ctypes.Structure):
    """BackgroundDevices of kernels_events.h."""

    _fields_ = (
        ("step_due", _POINTER),
        ("arrival_due", _POINTER),
        ("began", _POINTER),
        ("partner", _POINTER),
        ("steps", _POINTER),
        ("steps_since", _POINTER),
        ("messages", _POINTER),
        ("joules", _POINTER),
        ("away_until", _POINTER),
        ("bits", _POINTER),
        ("both", _INT64),
        ("wanted", _INT64),
        ("max_exchanges", _INT64),
    )


_DEVICES: dict[str, type[ctypes.Structure]] = {
    "pair_events": _PairDevices,
    "background_events": _BackgroundDevices,
}


class CompiledTimeline:
    """Plays rounds of the network in compiled code. `compiled_timeline` makes one.

    Args:
        function: The function of kernels_events.h.
        structure: The type of its second argument.
    """

    def __init__(self, function: loader.Function, structure: type[ctypes.Structure]) -> None:
        self._function = function
        self._structure = structure
        self._per_device = _EVENTS_PER_DEVICE

    def play(self, contacts: Mapping[str, Any], state: Arrays, values: Mapping[str, Any]) -> Arrays:
        """Play one round.

        Args:
            contacts: The fields of EventRound that are given.
            state: The arrays of the devices, which are overwritten.
            values: The other fields of the devices.

        Returns:
            The events and the exchanges that were cut: the arrays of EventRound.
        """
        while True:
            tried = {name: x.copy() for name, x in state.items()}
            found = self._try(contacts, tried, values)
            if found is not None:
                break
            self._per_device *= 2
        for name, x in tried.items():
            state[name][:] = x
        return found

    def _try(
        self, contacts: Mapping[str, Any], state: Arrays, values: Mapping[str, Any]
    ) -> Arrays | None:
        """Return what `play` does, or None if the buffers are too small."""
        devices = int(contacts["devices"])
        capacity = devices * self._per_device
        found: Arrays = {
            "time": np.empty(capacity),
            "cut_a": np.empty(devices, np.int64),
            "cut_b": np.empty(devices, np.int64),
            "cut_seconds": np.empty(devices),
        }
        for name in ("kind", "a", "b", "a_count", "b_count"):
            found[name] = np.empty(capacity, np.int64)
        queue = np.empty(capacity * _ENTRY_BYTES, np.uint8)
        given = {**contacts, **found, "queue": queue}
        now = _fill(_Round, {**given, "capacity": capacity, "queue_capacity": capacity})
        # Bits are part of a round, not of the state: a second try begins with the same.
        own = {name: x.copy() if name == "bits" else x for name, x in values.items()}
        has = _fill(self._structure, {**state, **own})
        count = self._function(ctypes.byref(now), ctypes.byref(has))
        if count < 0:
            return None
        for name, x in found.items():
            found[name] = x[: now.cuts if name.startswith("cut_") else count]
        return found


def _fill(structure: type[ctypes.Structure], values: Mapping[str, Any]) -> Any:
    """Return a structure with these values, and addresses of arrays; they are kept by the caller.

    Args:
        structure: Its type.
        values: By name of the field.
    """
    made = structure()
    for name, x in values.items():
        setattr(made, name, x.ctypes.data if isinstance(x, np.ndarray) else x)
    return made


def compiled_timeline(
    name: Literal["pair_events", "background_events"],
) -> CompiledTimeline | None:
    """Return a compiled timeline, or None if there is none.

    Args:
        name: Its function in kernels_events.h.
    """
    function = compiled_function(name)
    if function is None:
        return None
    return CompiledTimeline(function, _DEVICES[name])


def neighbours(
    devices: int, a: NDArray[np.int64], b: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the neighbours of each device, in the order of the links a – b.

    Args:
        devices: Number of devices.
        a: One device of each link.
        b: The other one.

    Returns:
        Where the neighbours of each device begin and where the last ones end; the neighbours, for
        each device first those of links of which it is the a; the numbers of their links.

    Example:
        >>> first, neighbour, link = neighbours(3, np.array([0, 1]), np.array([1, 2]))
        >>> first.tolist(), neighbour.tolist(), link.tolist()
        ([0, 1, 3, 4], [1, 2, 0, 1], [0, 1, 0, 1])
    """
    function = compiled_function("neighbours")
    if function is None:
        return _plain_neighbours(devices, a, b)
    first = np.empty(devices + 1, np.int64)
    neighbour = np.empty(2 * len(a), np.int64)
    link = np.empty(2 * len(a), np.int64)
    arrays = (_in_order(a), _in_order(b), first, neighbour, link, np.empty(devices, np.int64))
    function(devices, len(a), *(x.ctypes.data for x in arrays))
    return first, neighbour, link


def _plain_neighbours(
    devices: int, a: NDArray[np.int64], b: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    device = np.concatenate([a, b])
    order = np.argsort(device, kind="stable")
    first = np.zeros(devices + 1, dtype=np.int64)
    np.cumsum(np.bincount(device, minlength=devices), out=first[1:])
    return first, np.concatenate([b, a])[order], order % max(1, len(a))


def wave_numbers(
    a: NDArray[np.int64],
    b: NDArray[np.int64],
    turn: NDArray[np.int64],
    cycle: int,
    devices: int,
) -> NDArray[np.int64]:
    """Return the wave of each event: the first after those of the earlier events of its devices.

    Args:
        a: One device of each event, in the order of time.
        b: The other device; -1 if there is none.
        turn: Which waves an event may be in: those whose number modulo `cycle` is this.
        cycle: Number of turns.
        devices: Number of devices.

    Example:
        >>> zeros = np.zeros(3, np.int64)
        >>> wave_numbers(np.array([0, 2, 1]), np.array([1, -1, 2]), zeros, 1, 3).tolist()
        [0, 0, 1]
    """
    function = compiled_function("wave_numbers")
    if function is None:
        return _plain_wave_numbers(a, b, turn, cycle, devices)
    wave = np.empty(len(a), np.int64)
    following = np.zeros(devices, np.int64)
    given = (_in_order(a), _in_order(b), _in_order(turn))
    addresses = [x.ctypes.data for x in given]
    function(len(a), *addresses, cycle, following.ctypes.data, wave.ctypes.data)
    return wave


def _plain_wave_numbers(
    a: NDArray[np.int64],
    b: NDArray[np.int64],
    turn: NDArray[np.int64],
    cycle: int,
    devices: int,
) -> NDArray[np.int64]:
    following = [0] * (devices + 1)  # the first wave that is free; the last entry is for b = -1
    wave = []
    for one, other, own_turn in zip(a.tolist(), b.tolist(), turn.tolist(), strict=True):
        own = following[one]
        if other >= 0 and following[other] > own:
            own = following[other]
        own += (own_turn - own) % cycle
        wave.append(own)
        following[one] = own + 1
        if other >= 0:
            following[other] = own + 1
    return np.array(wave, dtype=np.int64)


def _in_order(x: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.ascontiguousarray(x, dtype=np.int64)
