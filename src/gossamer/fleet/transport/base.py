"""The interface of a transport."""

from __future__ import annotations

from typing import Protocol


class Transport(Protocol):
    """The links of one device.

    Methods may be called from several threads, `receive` from one thread only.
    """

    @property
    def device(self) -> int:
        """The number of this device."""

    def neighbours(self) -> frozenset[int]:
        """Return the devices to which a link is alive now."""

    def send(self, to: int, message: bytes) -> None:
        """Queue a message and return without waiting. Delivery is not guaranteed.

        Args:
            to: Number of the receiving device.
            message: The message.
        """

    def receive(self, timeout: float) -> tuple[int, bytes | bytearray] | None:
        """Return the next message.

        The number of messages that wait to be received is bounded.

        Args:
            timeout: Longest time to wait, in seconds.

        Returns:
            The sender, authenticated by the transport, and the message; None after the timeout.
        """

    def close(self) -> None:
        """Close all links."""
