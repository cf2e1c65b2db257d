"""Contact plans of space networks, in the format of ION (Interplanetary Overlay Network).

A line `a contact BEGIN END FROM TO RATE` adds a contact. Times are +seconds after the beginning of
the plan, or dates such as 2027/05/20-08:00:00 (UTC). Other commands, such as `a range`, and
contacts of a node with itself are ignored. Links go both ways, also where a plan lists one.
"""

from __future__ import annotations

import re

from gossamer.errors import DataError

_CONTACT = re.compile(
    rb"(?mi)^[ \t]*a[ \t]+contact[ \t]+(\S+)[ \t]+(\S+)[ \t]+(\S+)[ \t]+(\S+)(?:[ \t]+[^\n]*)?$"
)
_ADDS = re.compile(rb"(?mi)^[ \t]*a[ \t]+(contact|range)\b")
_DATE = re.compile(rb"(\d{4})/(\d\d)/(\d\d)-(\d\d:\d\d:\d\d)$")
COLUMNS = ("begin", "end", "a", "b")


def is_plan(data: bytes) -> bool:
    """True if a text is a contact plan.

    Args:
        data: The text, without comments.
    """
    return _ADDS.search(data[:65536]) is not None


def contacts_of_plan(path: object, data: bytes) -> bytes:
    """Return the contacts of a plan as lines `begin end a b`.

    Args:
        path: The plan, for messages.
        data: Its text, without comments.

    Returns:
        The text; every contact is in the line that it has in the plan.

    Raises:
        DataError: If the plan has no contacts, or a contact without its four values.
    """
    lines = []
    contacts = 0
    for number, line in enumerate(data.split(b"\n"), 1):
        row = b""
        if _ADDS.match(line) and b"contact" in line.lower():
            found = _CONTACT.match(line)
            if found is None:
                raise DataError(f"{path}, line {number}: expected `a contact BEGIN END FROM TO`")
            begin, end, one, other = found.groups()
            if one != other:
                row = b" ".join([_time(begin), _time(end), one, other])
                contacts += 1
        lines.append(row)
    if not contacts:
        raise DataError(f"{path} is a contact plan without contacts of two nodes")
    return b"\n".join(lines)


def _time(word: bytes) -> bytes:
    """Return a time of a plan as a number or an ISO date."""
    return _DATE.sub(rb"\1-\2-\3T\4Z", word.removeprefix(b"+"))
