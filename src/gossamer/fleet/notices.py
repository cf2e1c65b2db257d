"""What the owner of a fleet should look at: counted, printed, and published with the status."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Literal, get_args

Kind = Literal[
    "too many sessions",  # more than two sessions with one certificate
    "taken session id",  # a session in the id of another device
    "unknown name",  # a certificate of the fleet with a name that no device has
    "twin",  # two running devices have the same certificate
    "refused",  # a neighbour sends invalid messages
    "too large",  # a neighbour sends vectors much longer than the own
    "other study",  # a neighbour runs another model or method
    "certificate",  # the certificate has expired or expires soon
    "clock",  # the clock has jumped
    "strangers",  # connections without a certificate
    "no gate",  # this system cannot keep such connections away from the transport
    "diverged",  # the model was not finite and went back to an earlier one
    "error",  # an error was logged and skipped
]
KINDS: tuple[str, ...] = get_args(Kind)

_REPEAT_SECONDS = 60.0  # time until the same notice is printed again
_MAX_LISTED = 50  # notices that a status lists


class Notices:
    """The notices of a device. Methods may be called from several threads.

    Args:
        echo: Called with a sentence for each notice; the same one is repeated once a minute.

    Example:
        >>> notices = Notices(print)
        >>> notices.add("twin", 3, "n3 runs twice")
        n3 runs twice
        >>> notices.add("twin", 3, "n3 runs twice")
        >>> notices.entries()
        [{'kind': 'twin', 'device': 3, 'count': 2}]
    """

    def __init__(self, echo: Callable[[str], None] = lambda sentence: None) -> None:
        self._echo = echo
        self._lock = threading.Lock()
        self._counts: dict[tuple[Kind, int | None], int] = {}
        self._printed: dict[tuple[Kind, int | None], float] = {}

    def add(self, kind: Kind, device: int | None, sentence: str) -> None:
        """Add a notice.

        Args:
            kind: Its kind.
            device: The device that it is about; None: no device, such as an observer.
            sentence: What happened, in one sentence.
        """
        key = (kind, device)
        now = time.monotonic()
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + 1
            again = now - self._printed.get(key, -_REPEAT_SECONDS) >= _REPEAT_SECONDS
            if again:
                self._printed[key] = now
        if again:
            self._echo(sentence)

    def remove(self, kind: Kind) -> None:
        """Remove the notices of a kind that no longer hold.

        Args:
            kind: The kind.
        """
        with self._lock:
            for key in [key for key in self._counts if key[0] == kind]:
                del self._counts[key]

    def entries(self) -> list[dict[str, Any]]:
        """Return the notices for a status: kind, device, and how often."""
        with self._lock:
            counts = list(self._counts.items())[-_MAX_LISTED:]
        return [{"kind": kind, "device": i, "count": count} for (kind, i), count in counts]
