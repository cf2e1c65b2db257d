"""Checks of arguments: each raises an `InputError` that names field, value and what is accepted."""

from __future__ import annotations

import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any

from gossamer.errors import InputError, nearest


def whole(
    field: str,
    value: Any,
    least: int | None = None,
    most: int | None = None,
    noun: str = "a whole number",
) -> None:
    """Refuse anything but a whole number in a range.

    Args:
        field: Name of the argument, for the message.
        value: The argument.
        least: Smallest accepted value, or None for no limit.
        most: Largest accepted value, or None for no limit.
        noun: How the message names what is accepted.

    Raises:
        InputError: If the value is not a whole number, is a bool, or is out of range.

    Example:
        >>> whole("rounds", -1, 0)
        Traceback (most recent call last):
        gossamer.errors.InputError: rounds = -1 is not accepted: give a whole number of at least 0
    """
    accepted = isinstance(value, Integral) and not isinstance(value, bool)
    if accepted:
        above_least = least is None or value >= least
        accepted = above_least and (most is None or value <= most)
    if not accepted:
        raise InputError(field, value, noun + _range(least=least, most=most))


def number(
    field: str,
    value: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    noun: str = "a number",
) -> None:
    """Refuse anything but a finite number in a range.

    Args:
        field: Name of the argument, for the message.
        value: The argument.
        least: Smallest accepted value.
        above: Every accepted value is larger than this.
        most: Largest accepted value.
        below: Every accepted value is smaller than this.
        noun: How the message names what is accepted, such as "a number of seconds".

    Raises:
        InputError: If the value is not a number, is not finite, or is out of range.

    Example:
        >>> number("pull", 2, above=0, most=1)
        Traceback (most recent call last):
        gossamer.errors.InputError: pull = 2 is not accepted: give a number above 0 and at most 1
    """
    accepted = isinstance(value, Real) and _is_finite(value)
    if accepted:
        from_least = least is None or value >= least
        over = above is None or value > above
        to_most = most is None or value <= most
        under = below is None or value < below
        accepted = from_least and over and to_most and under
    if not accepted:
        raise InputError(field, value, noun + _range(least, above, most, below))


def positive(field: str, value: Any, noun: str = "a number") -> None:
    """Refuse anything but a finite number above 0.

    Args:
        field: Name of the argument, for the message.
        value: The argument.
        noun: How the message names what is accepted.

    Raises:
        InputError: If it is anything else.
    """
    number(field, value, above=0, noun=noun)


def not_negative(field: str, value: Any, noun: str = "a number") -> None:
    """Refuse anything but a finite number of at least 0.

    Args:
        field: Name of the argument, for the message.
        value: The argument.
        noun: How the message names what is accepted.

    Raises:
        InputError: If it is anything else.
    """
    number(field, value, least=0, noun=noun)


def probability(field: str, value: Any) -> None:
    """Refuse anything but a number from 0 to 1.

    Args:
        field: Name of the argument, for the message.
        value: The argument.

    Raises:
        InputError: If it is anything else.
    """
    number(field, value, least=0, most=1)


def one_of(field: str, value: Any, choices: Collection[str]) -> None:
    """Refuse anything but one of some words.

    Args:
        field: Name of the argument, for the message.
        value: The argument.
        choices: The accepted words, in the order of the message.

    Raises:
        InputError: If the value is none of them; with a hint if one of them is close.

    Example:
        >>> one_of("side", "top", ("left", "right"))
        Traceback (most recent call last):
        gossamer.errors.InputError: side = 'top' is not accepted: give one of 'left', 'right'
    """
    if value not in tuple(choices):
        words = ", ".join(repr(choice) for choice in choices)
        hint = nearest(value, choices) if isinstance(value, str) else ""
        raise InputError(field, value, f"one of {words}{hint}")


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number too large for a float
        return False


def _range(
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> str:
    """Return a range in words, such as " from 0 to 1" or " above 0 and at most 1"."""
    if least is not None and most is not None:
        return f" from {least} to {most}"
    limits = []
    if least is not None:
        limits.append(f"of at least {least}")
    if above is not None:
        limits.append(f"above {above}")
    if most is not None:
        limits.append(f"at most {most}")
    if below is not None:
        limits.append(f"below {below}")
    if not limits:
        return ""
    return " " + " and ".join(limits)
