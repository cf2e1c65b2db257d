"""Which neighbours are alive, and over which link each is reached.

A neighbour has a liveliness token and a link that is up: a link goes when its lease has run out, a
token sometimes much later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple


class Link(NamedTuple):
    """A link of zenoh to a device: zenoh's id of the session, and the addresses of both ends."""

    device: int
    session: str
    ends: tuple[str, str]


class LinkTable:
    """The links and tokens that zenoh reports, and the link in use to each device.

    Args:
        on_change: Called with (device, alive, new link) when a device comes, goes, or is reached
            over another link.
    """

    def __init__(self, on_change: Callable[[int, bool, bool], None]) -> None:
        self._on_change = on_change
        self._lock = threading.Lock()
        self._tokens: set[int] = set()
        self._links: dict[Link, None] = {}  # in the order of arrival
        self._in_use: dict[int, Link | None] = {}
        self._alive: set[int] = set()

    def in_use(self, device: int) -> Link | None:
        """Return the link over which a device is reached."""
        return self._in_use.get(device)

    def set_token(self, device: int, present: bool) -> None:
        """Note that the token of a device appeared or vanished."""
        with self._lock:
            if present:
                self._tokens.add(device)
            else:
                self._tokens.discard(device)
            self._update(device)

    def set_link(self, link: Link, present: bool) -> None:
        """Note that a link appeared or vanished."""
        with self._lock:
            if present:
                self._links[link] = None
            else:
                self._links.pop(link, None)
            self._update(link.device)

    def prune(self, list_links: Callable[[], Iterable[tuple[str, tuple[str, str]]]]) -> None:
        """Remove links that no longer exist: zenoh does not report every end while links flap.

        Args:
            list_links: Called for the (session, ends) of all existing links, after the known links
                are copied, so that a link which appears meanwhile is not removed.
        """
        with self._lock:
            known = list(self._links)
        existing = set(list_links())
        with self._lock:
            for link in known:
                if (link.session, link.ends) not in existing and link in self._links:
                    del self._links[link]
                    self._update(link.device)

    def _update(self, device: int) -> None:
        links = [link for link in self._links if link.device == device]
        before = self._in_use.get(device)
        link = choose_link(links, before)
        self._in_use[device] = link
        alive = bool(links) and device in self._tokens
        if link == before and alive == (device in self._alive):
            return
        if alive:
            self._alive.add(device)
        else:
            self._alive.discard(device)
        self._on_change(device, alive, link != before)


def choose_link(links: list[Link], in_use: Link | None) -> Link | None:
    """Return the link over which to reach a device.

    A session in use is kept as long as it exists, so that nobody else with the same certificate can
    take it over. Of its links the last is chosen: it may be reported before the end of the one that
    it replaces.

    Args:
        links: All links to the device, in the order of arrival.
        in_use: The link in use so far.
    """
    if not links:
        return None
    session = links[0].session
    if in_use is not None and any(link.session == in_use.session for link in links):
        session = in_use.session
    for link in reversed(links):
        if link.session == session:
            return link
    return None
