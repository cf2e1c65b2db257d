"""A server of the live page, in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gossamer.report.server import Server


@contextmanager
def serving(folder: Path, **options: Any) -> Iterator[Server]:
    """Serve a folder until the block ends."""
    with Server(folder, **options) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
