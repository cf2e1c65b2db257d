"""`gossamer watch`: serve the live page. The server only reads, and only answers this machine."""

from __future__ import annotations

import ipaddress
import json
import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gossamer._core.http_server import BoundedHTTPServer
from gossamer.errors import GossamerError, InputError
from gossamer.report.page import assemble
from gossamer.report.watch import Watch

_MAX_CONNECTIONS = 16
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
_ANY_ADDRESS = ("", "0.0.0.0", "::")
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


class Server(BoundedHTTPServer):
    """An HTTP server for the live page and its data.

    It answers GET requests that name this machine, and nothing else.

    Example:
        >>> with Server(Path("runs/a")) as server:    # doctest: +SKIP
        ...     print(server.url)
        ...     server.serve_forever()
    """

    def __init__(
        self, folder: Path, host: str = "127.0.0.1", port: int = 0, connect: Sequence[str] = ()
    ) -> None:
        """Bind the server.

        Args:
            folder: A run folder, a folder with runs in it, or a fleet's folder.
            host: The address to listen on; other machines can connect if it is not a local one.
            port: The port; 0 takes one that is free.
            connect: Devices of a fleet to follow over the network, each as host or host:port.

        Raises:
            InputError: The address cannot be bound.
            GossamerError: The folder cannot be watched.
        """
        self.watch = Watch(folder, connect)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler, _MAX_CONNECTIONS)
        except OSError as error:
            raise _not_bound(host, port, error.strerror) from None
        except OverflowError as error:
            raise _not_bound(host, port, error) from None
        self._any_address = host in _ANY_ADDRESS
        self._names = {*_LOCAL_NAMES, host.lower(), socket.gethostname().lower()}

    @property
    def url(self) -> str:
        """The address of the page."""
        host, port = self.socket.getsockname()[:2]
        if self._any_address:
            host = "127.0.0.1"
        elif ":" in host:
            host = f"[{host}]"
        return f"http://{host}:{port}/"

    def accepts(self, host: str | None) -> bool:
        """True if a request names this server.

        A foreign site whose name resolves to this machine must not read the page.

        Args:
            host: The request's Host header.
        """
        try:
            name = urlsplit(f"//{host or ''}").hostname or ""
        except ValueError:
            return False
        if name in self._names:
            return True
        with suppress(ValueError):
            return self._any_address and bool(ipaddress.ip_address(name))
        return False

    def server_close(self) -> None:
        super().server_close()
        self.watch.close()


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = 10
    server_version = "gossamer"
    sys_version = ""

    def do_GET(self) -> None:
        if not self.server.accepts(self.headers.get("Host")):
            self._text(HTTPStatus.MISDIRECTED_REQUEST, "this server is not known by that name")
            return
        try:
            self._respond()
        except GossamerError as error:
            self._text(HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    def _respond(self) -> None:
        watch = self.server.watch
        if self.path == "/":
            body, _ = watch.content()
            page = assemble("live", watch.title, json.loads(body), connect="'self'")
            self._send(HTTPStatus.OK, page.encode(), "text/html")
            return
        if self.path == "/content.json":
            self._send_content()
            return
        data = re.fullmatch(r"/data/(\d{1,4})\.json", self.path)
        found = watch.data(int(data[1])) if data else None
        if found is None:
            self._text(HTTPStatus.NOT_FOUND, "there is nothing here")
        else:
            self._send(HTTPStatus.OK, found, "application/json")

    def _send_content(self) -> None:
        body, tag = self.server.watch.content()
        if self.headers.get("If-None-Match") == tag:
            self._send(HTTPStatus.NOT_MODIFIED, b"", "application/json", tag)
        else:
            self._send(HTTPStatus.OK, body, "application/json", tag)

    def _text(self, status: HTTPStatus, sentence: str) -> None:
        self._send(status, f"{sentence}\n".encode(), "text/plain")

    def _send(self, status: HTTPStatus, body: bytes, kind: str, tag: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if tag:
            self.send_header("ETag", tag)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the terminal belongs to the user."""


def _not_bound(host: str, port: int, reason: object) -> InputError:
    return InputError(
        "port", f"{host}:{port}", f"an address of this machine that is free ({reason})"
    )
