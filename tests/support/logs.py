"""Logs of contacts for tests: lines that are made by rule, and contacts as plain tuples."""

from __future__ import annotations

from collections.abc import Callable

from gossamer.network import ContactLog


def made(line: Callable[[int], str], count: int) -> str:
    """Return a text of some lines.

    Args:
        line: Returns the line of a number, from 0.
        count: Number of lines.
    """
    return "\n".join(map(line, range(count))) + "\n"


def as_tuples(log: ContactLog) -> list[tuple[float, float, str, str]]:
    """Return the begin, the end and both names of every contact.

    Args:
        log: The contacts.
    """
    contacts = []
    for k in range(len(log)):
        first = log.names[log.a[k]]
        second = log.names[log.b[k]]
        contacts.append((float(log.begin[k]), float(log.end[k]), first, second))
    return contacts
