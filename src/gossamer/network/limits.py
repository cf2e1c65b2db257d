"""Limits of networks and link files, and the checks that all networks share."""

from __future__ import annotations

from typing import Any

from gossamer._core import checks
from gossamer.errors import InputError

MAX_DEVICES = 10_000_000
MAX_LINKS = 100_000_000  # links of one round or one file: 1.6 GB as two int64 columns
MAX_ROUNDS = 100_000_000  # rounds of a file


def check_devices(value: Any) -> None:
    """Refuse a number of devices that is not from 1 to MAX_DEVICES.

    Args:
        value: The argument `devices`.
    """
    checks.whole("devices", value, 1, MAX_DEVICES)


def check_drawn(seed: Any, every: Any = 1) -> None:
    """Check the two fields of every network that is drawn at random.

    Args:
        seed: The argument `seed`.
        every: The argument `every`: number of rounds that a drawn graph stays.
    """
    checks.whole("seed", seed)
    checks.whole("every", every, 0)


def check_links(field: str, value: Any, links: float) -> None:
    """Refuse a network with more than MAX_LINKS links per round, before memory is allocated.

    Args:
        field: Name of the argument that determines the number of links.
        value: The argument.
        links: The number of links per round that follows from it.
    """
    if links > MAX_LINKS:
        accepted = f"a sparser network: a round may have {MAX_LINKS:,} links, not {links:,.0f}"
        raise InputError(field, value, accepted)
