"""Devices of a log: any names, mapped to the numbers 0 … m-1 in a stated order.

If all names are whole numbers, devices are in the order of these numbers; otherwise the names are
sorted as text. A number that does not occur is no device. Leading zeros do not count: 007 is 7.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gossamer.errors import DataError, InputError
from gossamer.network import limits
from gossamer.network.base import IntArray
from gossamer.network.traces.text import SHOWN

if TYPE_CHECKING:
    from gossamer.network.traces.table import Table

# What statistics programs write where a value is missing.
_MISSING = frozenset(["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"])
_WHOLE = re.compile(r"\d+(\.0+)?", re.ASCII)
_FRACTION = re.compile(r"[+-]?\d*[.,]\d+([eE][+-]?\d+)?", re.ASCII)


def read_ids(table: Table, columns: Sequence[int]) -> tuple[tuple[str, ...], list[IntArray]]:
    """Return the devices that some columns name.

    Args:
        table: The log.
        columns: Numbers of the columns.

    Returns:
        The names of the devices in the order of their numbers, and the numbers in each column.

    Raises:
        DataError: If a name is missing, negative or a fraction, or there are too many.
    """
    encoded = []
    names: dict[str, None] = {}
    for k in columns:
        words, index = table.columns[k].encoded
        canonical = [_canonical(table, k, word) for word in words]
        encoded.append((canonical, index))
        names |= dict.fromkeys(canonical)
    if len(names) > limits.MAX_DEVICES:
        raise DataError(f"{table.path} has more than {limits.MAX_DEVICES:,} devices")
    order = in_order(list(names))
    number = {name: k for k, name in enumerate(order)}
    numbered = []
    for canonical, index in encoded:
        numbers = np.array([number[name] for name in canonical], dtype=np.int64)
        numbered.append(numbers[index])
    return order, numbered


def in_order(names: Sequence[str]) -> tuple[str, ...]:
    """Return names in the order of the devices' numbers.

    Args:
        names: The names, without leading zeros.

    Example:
        >>> in_order(["10", "9"]), in_order(["10", "9", "ann"])
        (('9', '10'), ('10', '9', 'ann'))
    """
    if all(name.isascii() and name.isdecimal() for name in names):
        return tuple(sorted(names, key=lambda name: (len(name), name)))
    return tuple(sorted(names))


def with_count(
    path: object, names: tuple[str, ...], devices: int
) -> tuple[tuple[str, ...], IntArray]:
    """Return names of a given number of devices.

    Args:
        path: The log, for messages.
        names: The names that the log has, in order.
        devices: Number of devices; 0 for as many as the log names. If it is larger, the names have
            to be numbers below it: devices are then all numbers from 0, and those that the log
            does not name never meet another.

    Returns:
        The names of all devices, and the numbers of those that the log names.

    Raises:
        InputError: If the log does not fit the number.
    """
    if devices in (0, len(names)):
        return names, np.arange(len(names))
    are_numbers = all(name.isascii() and name.isdecimal() for name in names)
    if are_numbers and len(names[-1]) <= len(str(devices)) and int(names[-1]) < devices:
        return tuple(map(str, range(devices))), np.array([int(name) for name in names])
    accepted = f"{len(names)}, the number of devices that {path} names, or leave it out"
    raise InputError("devices", devices, accepted)


def _canonical(table: Table, column: int, word: str) -> str:
    """Return a name as it is shown; refuse one that is missing or no name."""
    if word[:1].isdigit() and _WHOLE.fullmatch(word):
        return word.split(".")[0].lstrip("0") or "0"
    reason = ""
    if word in _MISSING:
        reason = f"device {word!r} is a missing value; remove the line, or give the device a name"
    elif word.startswith("-") and word[1:].isdecimal():
        reason = (
            f"device {word} is negative, which often stands for none; remove such lines, "
            "or give it another name"
        )
    elif _FRACTION.fullmatch(word):
        reason = (
            f"device {word} is a fraction; say which columns have the devices, "
            'such as columns = ["time", "a", "b"]'
        )
    elif len(word) > SHOWN:
        reason = f"device {word[:SHOWN]!r}… has a name of more than {SHOWN} characters"
    elif '"' in word:
        reason = f"device {word!r} has a quote in its name; put whole names in quotes, or none"
    elif not word.isprintable():
        reason = f"device {word!r} has a name that cannot be printed"
    if not reason:
        return word
    words, index = table.columns[column].encoded
    raise table.error(int(np.flatnonzero(index == words.index(word))[0]), reason)
