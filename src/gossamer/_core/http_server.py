"""An HTTP server with a limit of connections, for pages that this machine reads."""

from __future__ import annotations

import threading
from http.server import HTTPServer
from socketserver import ThreadingMixIn
from typing import Any


class BoundedHTTPServer(ThreadingMixIn, HTTPServer):
    """An HTTP server with a thread per connection. Connections beyond a limit are closed.

    Args:
        address: Where it listens.
        handler: The class that answers a connection.
        connections: The limit.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: Any, handler: Any, connections: int) -> None:
        self._free = threading.BoundedSemaphore(connections)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a reader that disconnects in the middle of a response."""
