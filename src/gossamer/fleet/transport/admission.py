"""Which connections are passed on to zenoh, and when.

zenoh accepts no connection for 100 ms after every failed TLS handshake. A stranger without a
certificate who fails ten handshakes a second would keep all devices out. So a connection is passed
on only once it has begun a handshake, and failures are limited: for each address, and for all
addresses together that have never linked.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass

PENDING_PER_ADDRESS = 2  # handshakes at a time; a device and an observer may share an address
_STRANGERS_PENDING = 8  # handshakes at a time of all addresses that have never linked
# Failures per second of unknown addresses; zenoh then still accepts for 70 % of the time.
_FAILURES_PER_SECOND = 3.0
_FAILURES_AT_ONCE = 3.0
_FIRST_PAUSE = 0.5  # seconds of an address after a failed handshake; doubled with each further one
_LONGEST_PAUSE = 8.0
_MAX_ADDRESSES = 4096  # remembered
_PREFIX_V6 = 64  # bits of an IPv6 address that a network gives to one machine


@dataclass(eq=False)
class _Address:
    """What is known of an address."""

    known: bool  # True for the address of a device, or one that has linked
    pending: int = 0
    failures: int = 0  # failed handshakes since it last linked
    not_before: float = 0.0


@dataclass(frozen=True, eq=False)
class Handshake:
    """A handshake that has begun."""

    address: _Address
    of_stranger: bool


class Admission:
    """The limits of handshakes. Times are by any one clock, in seconds.

    Args:
        known: Addresses of devices of the fleet.

    Example:
        >>> admission = Admission()
        >>> handshake = admission.begin("10.0.0.9", now=0.0)
        >>> admission.fail(handshake, now=0.1)
        >>> admission.begin("10.0.0.9", now=0.2) is None
        True
        >>> admission.begin("10.0.0.9", now=0.7) is None
        False
    """

    def __init__(self, known: tuple[str, ...] = ()) -> None:
        self._addresses: OrderedDict[str, _Address] = OrderedDict()
        self._known = {_group(host) for host in known}
        self._strangers = 0  # handshakes of strangers that have begun and not ended
        self._tokens = _FAILURES_AT_ONCE
        self._filled = 0.0  # time at which the tokens were last counted

    def begin(self, host: str, now: float) -> Handshake | None:
        """Begin a handshake, or return None if the address has to wait.

        Args:
            host: The address.
            now: The time.
        """
        address = self._address(host)
        if address.pending >= PENDING_PER_ADDRESS or now < address.not_before:
            return None
        if not address.known:
            self._fill(now)
            if self._strangers >= min(_STRANGERS_PENDING, self._tokens):
                return None
            self._strangers += 1
        address.pending += 1
        return Handshake(address, not address.known)

    def succeed(self, handshake: Handshake) -> None:
        """Note that a handshake succeeded: its address is that of a device.

        Args:
            handshake: The handshake.
        """
        self._end(handshake)
        address = handshake.address
        address.known = True
        address.failures = 0
        address.not_before = 0.0

    def fail(self, handshake: Handshake, now: float) -> None:
        """Note that a handshake failed.

        Args:
            handshake: The handshake.
            now: The time.
        """
        self._end(handshake)
        if handshake.of_stranger:
            self._fill(now)
            self._tokens -= 1
        address = handshake.address
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(address.failures, 10))
        address.failures += 1
        address.not_before = now + pause

    def _end(self, handshake: Handshake) -> None:
        handshake.address.pending -= 1
        self._strangers -= handshake.of_stranger

    def _fill(self, now: float) -> None:
        gained = _FAILURES_PER_SECOND * max(0.0, now - self._filled)
        self._tokens = min(_FAILURES_AT_ONCE, self._tokens + gained)
        self._filled = now

    def _address(self, host: str) -> _Address:
        group = _group(host)
        found = self._addresses.get(group)
        if found is None:
            found = _Address(known=group in self._known)
            self._addresses[group] = found
            if len(self._addresses) > _MAX_ADDRESSES:
                self._forget_one()
        self._addresses.move_to_end(group)
        return found

    def _forget_one(self) -> None:
        """Forget the address that was seen longest ago, if possible a stranger's."""
        for group, address in self._addresses.items():
            if not address.known and not address.pending:
                del self._addresses[group]
                return
        self._addresses.popitem(last=False)


def _group(host: str) -> str:
    """Return what is counted as one address: of IPv6 the prefix of one machine."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:
        return host
    return str(ipaddress.ip_network((address, _PREFIX_V6), strict=False))
