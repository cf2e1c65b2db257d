"""Sockets of this process that zenoh has opened, found by their addresses.

zenoh has no calls that close a single link or that restrict a listener. Both are done on its socket
itself, which this process owns.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

_FOLDER = Path("/proc/self/fd")  # Linux only
_FAMILIES = (socket.AF_INET, socket.AF_INET6)

Address = tuple[str, int]


def parse_address(text: str) -> Address | None:
    """Return host and port of an endpoint of zenoh.

    Args:
        text: The endpoint, such as "tls/10.0.0.2:7447".

    Example:
        >>> parse_address("tls/10.0.0.2:7447"), parse_address("tls/[::ffff:10.0.0.2]:7447")
        (('10.0.0.2', 7447), ('10.0.0.2', 7447))
    """
    host, _, port = text.rpartition("/")[2].partition("#")[0].rpartition(":")
    if not port.isdigit():
        return None
    return _plain(host.strip("[]")), int(port)


def socket_address(given: tuple[str, int] | tuple[str, int, int, int]) -> Address:
    """Return host and port of an address as the socket module writes it.

    Args:
        given: The address, of either family.
    """
    return _plain(given[0]), given[1]


def listening_sockets(port: int) -> list[socket.socket]:
    """Return duplicates of the sockets of this process that listen on a port.

    Args:
        port: The port.
    """
    found = []
    for one in _sockets():
        if _listens(one) and one.getsockname()[1] == port:
            found.append(one)
        else:
            one.close()
    return found


def end_connection(here: Address, there: Address) -> bool:
    """End a TCP connection of this process, whoever uses it.

    Args:
        here: The address of this end.
        there: The address of the other end.

    Returns:
        False if there is no such connection.
    """
    for found in _sockets():
        with closing(found), suppress(OSError):
            ends = socket_address(found.getsockname()), socket_address(found.getpeername())
            if ends == (here, there):
                found.shutdown(socket.SHUT_RDWR)
                return True
    return False


def _plain(host: str) -> str:
    """Return an IPv4 address without the prefix that it has in a socket of both families."""
    return host.removeprefix("::ffff:") if "." in host else host


def _sockets() -> Iterator[socket.socket]:
    """Yield duplicates of the TCP sockets of this process, which the caller closes."""
    if not _FOLDER.is_dir():
        return
    for name in os.listdir(_FOLDER):
        with suppress(OSError):
            if not os.readlink(_FOLDER / name).startswith("socket:"):
                continue
            found = socket.socket(fileno=os.dup(int(name)))
            if found.type == socket.SOCK_STREAM and found.family in _FAMILIES:
                yield found
            else:
                found.close()


def _listens(found: socket.socket) -> bool:
    return found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) != 0
