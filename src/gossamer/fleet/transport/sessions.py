"""Which sessions of zenoh are accepted: at most two for each name, and none in another's id.

A certificate proves a name. zenoh itself identifies a session by an id that its owner chooses, and
adds a link in the same id to the same session, whatever its certificate. The ids of devices end
with their numbers, so an id that does not fit the name is seen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from typing import Literal

from gossamer.fleet.transport.configuration import DEVICE_DIGITS, OBSERVER_NUMBER
from gossamer.fleet.transport.links import Link

# Sessions per name: that of a restarted device, and the one before.
MAX_SESSIONS = 2
Refusal = Literal["unknown name", "taken session id", "too many sessions"]


class Sessions:
    """The sessions of each name.

    Args:
        names: Name in the certificate of each device.
        observer: Name in the certificate of observers.
        refused: Devices that were removed or revoked.

    Example:
        >>> sessions = Sessions(("n0", "n1"), "observer")
        >>> ids = [f"{i}00000001" for i in range(3)]
        >>> links = [Link(1, id, ("a", f"b{id}")) for id in ids]
        >>> [sessions.add("n1", link) for link in links]
        [None, None, 'too many sessions']
        >>> sessions.add("n0", links[0])
        'taken session id'
    """

    def __init__(
        self, names: Sequence[str], observer: str, refused: frozenset[str] = frozenset()
    ) -> None:
        self._lock = threading.Lock()
        self._numbers = {}
        for number, name in enumerate(names):
            if name not in refused:
                self._numbers[name] = number
        self._numbers[observer] = OBSERVER_NUMBER
        # Links by name, each with the time at which it appeared.
        self._links: dict[str, dict[Link, float]] = {}

    def add(self, name: str | None, link: Link) -> Refusal | None:
        """Add a new link; return why it is refused, or None.

        Args:
            name: The name in its certificate.
            link: The link.
        """
        number = self._numbers.get(name or "")
        if name is None or number is None:
            return "unknown name"
        if int(link.session[-DEVICE_DIGITS:], 16) != number:
            return "taken session id"
        with self._lock:
            links = self._links.setdefault(name, {})
            sessions = {known.session for known in links}
            if len(sessions | {link.session}) > MAX_SESSIONS:
                return "too many sessions"
            links[link] = time.monotonic()
        return None

    def remove(self, name: str | None, link: Link) -> None:
        """Remove a link that has ended.

        Args:
            name: The name in its certificate.
            link: The link.
        """
        with self._lock:
            self._links.get(name or "", {}).pop(link, None)

    def prune(self, existing: Iterable[tuple[str, tuple[str, str]]]) -> None:
        """Remove links that no longer exist.

        Args:
            existing: Session and ends of all links that exist now, or came since.
        """
        kept = set(existing)
        now = time.monotonic()
        with self._lock:
            for links in self._links.values():
                for link, since in list(links.items()):
                    if (link.session, link.ends) not in kept and now - since > 1:
                        del links[link]

    def twins(self, seconds: float) -> list[str]:
        """Return the names that have had two sessions at the same time for longer than this.

        Args:
            seconds: The time; a device that was restarted has two for no longer than a lease.
        """
        latest = time.monotonic() - seconds
        found = []
        with self._lock:
            for name, links in self._links.items():
                old = {link.session for link, since in links.items() if since < latest}
                if len(old) >= MAX_SESSIONS:
                    found.append(name)
        return found
