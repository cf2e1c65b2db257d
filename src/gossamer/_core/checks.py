"""Checks that the networks share: what a field may be, and what fits in memory."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np

from gossamer.errors import InputError

MAX_DEVICES = 10_000_000
MAX_LINKS = 100_000_000  # of one round, or of one file: 1.6 GB as two int64 columns
MAX_ROUNDS = 100_000_000  # of a file


def whole(field: str, value: Any, least: int, most: int | None = None) -> None:
    """A whole number from `least` (to `most`)."""
    fine = isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= least
    if not fine or (most is not None and value > most):
        raise InputError(
            field, value, f"a whole number from {least}" + ("" if most is None else f" to {most}")
        )


def devices(value: Any) -> None:
    whole("devices", value, 1, MAX_DEVICES)


def drawn(seed: Any, every: Any = 1) -> None:
    """The two fields of everything that is drawn."""
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool):
        raise InputError("seed", seed, "a whole number")
    whole("every", every, 0)


def share(field: str, value: Any) -> None:
    """A number from 0 to 1."""
    if not isinstance(value, int | float | np.number) or not 0 <= value <= 1:
        raise InputError(field, value, "a number from 0 to 1")


def finite(field: str, value: Any, zero: bool = False) -> None:
    """A finite number above 0 (or `zero` itself)."""
    if (
        not isinstance(value, int | float | np.number)
        or not math.isfinite(value)
        or value < 0
        or (value == 0 and not zero)
    ):
        raise InputError(field, value, f"a finite number {'from' if zero else 'above'} 0")


def choice(field: str, value: Any, among: Collection[str]) -> None:
    if value not in among:
        raise InputError(field, value, "one of " + ", ".join(f'"{word}"' for word in among))


def fits(field: str, value: Any, links: float) -> None:
    """Refuse what would not fit before memory is taken for it."""
    if links > MAX_LINKS:
        raise InputError(
            field,
            value,
            f"a sparser network: a round may have {MAX_LINKS:,} links, not {links:,.0f}",
        )
