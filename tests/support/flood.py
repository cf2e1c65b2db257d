"""Open and drop TCP connections to devices, without a certificate.

`python flood.py KIND RATE HOST:PORT...` prints the number of connections opened in each second.

drop      closes at once
hello     sends a valid TLS ClientHello, then closes
silent    sends nothing and keeps the connection open
garbage   sends bytes that are no TLS, then closes
"""

from __future__ import annotations

import socket
import ssl
import sys
import time
from collections import deque
from contextlib import suppress

_MAX_OPEN = 500  # connections kept open by "silent"


def client_hello() -> bytes:
    """Return the first bytes of a TLS connection."""
    incoming = ssl.MemoryBIO()
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = context.wrap_bio(incoming, outgoing)
    with suppress(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


def main() -> None:
    kind = sys.argv[1]
    rate = float(sys.argv[2])
    targets = []
    for text in sys.argv[3:]:
        host, _, port = text.rpartition(":")
        targets.append((host, int(port)))
    first = {"hello": client_hello(), "garbage": b"GET / HTTP/1.0\r\n\r\n"}.get(kind, b"")
    opened: deque[socket.socket] = deque()
    begin = time.monotonic()
    count = 0
    printed = 0
    while True:
        time.sleep(max(0.0, begin + count / rate - time.monotonic()))
        connection = socket.socket()
        connection.settimeout(0.2)
        count += 1
        with suppress(OSError):
            connection.connect(targets[count % len(targets)])
            connection.sendall(first)
        opened.append(connection)
        while len(opened) > (_MAX_OPEN if kind == "silent" else 0):
            opened.popleft().close()
        if time.monotonic() - begin > printed + 1:
            printed += 1
            print(count, flush=True)


if __name__ == "__main__":
    main()
