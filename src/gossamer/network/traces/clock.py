"""Times that a user gives, and periods in words."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from typing import Any

import numpy as np

from gossamer.errors import InputError

MIN_UNIX = 5e8  # seconds since 1970: 5 November 1985; smaller numbers are relative times
EXAMPLE = "2010-12-06T01:02:20Z"
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def seconds_of(field: str, value: Any) -> tuple[float, bool]:
    """Return a time that the user gives.

    Args:
        field: Name of the argument, for messages.
        value: A number of seconds, an ISO date as text, or a `datetime`.

    Returns:
        The time in seconds, and True if it is a date, in seconds since 1970.

    Raises:
        InputError: If it is anything else.

    Example:
        >>> seconds_of("start", "2010-12-06T01:02:20Z")
        (1291597340.0, True)
    """
    accepted = f"a number of seconds, or an ISO date such as {EXAMPLE!r}"
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            raise InputError(field, value, accepted) from None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if isinstance(value, datetime):
        if value.tzinfo is None:
            value = value.replace(tzinfo=UTC)
        return value.timestamp(), True
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value):
        raise InputError(field, value, accepted)
    return float(value), False


def in_words(begin: float, end: float, absolute: bool) -> str:
    """Return a period in words.

    Args:
        begin: Its first time, in seconds.
        end: Its last time, in seconds.
        absolute: True if these are seconds since 1970.

    Example:
        >>> in_words(1291597340, 1291944840, absolute=True)
        '6 Dec 2010 01:02 to 10 Dec 01:34 UTC'
        >>> in_words(0, 34.5, absolute=False)
        '0 s to 34.5 s'
    """
    if not absolute:
        return f"{begin:,.10g} s to {end:,.10g} s"
    first = datetime.fromtimestamp(begin, UTC)
    last = datetime.fromtimestamp(end, UTC)
    clock = "%H:%M"
    if end - begin < 3600:
        clock = "%H:%M:%S"
    until = last.strftime(clock)
    if first.date() != last.date():
        until = f"{last.day} {_MONTHS[last.month - 1]} {until}"
    if first.year != last.year:
        until = f"{last.day} {_MONTHS[last.month - 1]} {last.year} {last.strftime(clock)}"
    since = f"{first.day} {_MONTHS[first.month - 1]} {first.year} {first.strftime(clock)}"
    return f"{since} to {until} UTC"


def count(number: int, noun: str) -> str:
    """Return a number of things in words.

    Args:
        number: The number.
        noun: What they are, in the singular.

    Example:
        >>> count(1, "round"), count(1159, "round")
        ('1 round', '1,159 rounds')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}s"
