"""A transport whose waits end when the device is told to stop."""

from __future__ import annotations

from gossamer.fleet.machine import Clock, StopSignal
from gossamer.fleet.transport.base import Transport

_SLICE_SECONDS = 0.25  # period of checking the signal
_GRACE_SECONDS = 1.0  # time for an exchange to end after the signal


class Stopped(Exception):
    """The device is to stop, and a wait has not ended by itself."""


class StoppableTransport:
    """A transport that raises `Stopped` from `receive` when the device is told to stop.

    An exchange that is nearly over still ends. One that is given up is like one in which the device
    is killed: its journal has all that a neighbour depends on.

    Args:
        transport: The device's links.
        clock: The clock of the machine.
    """

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self._transport = transport
        self._clock = clock
        self._stopped: StopSignal | None = None
        self._since: float | None = None  # when the signal was first seen

    @property
    def device(self) -> int:
        """The number of this device."""
        return self._transport.device

    def watch(self, stopped: StopSignal) -> None:
        """End waits by a signal.

        Args:
            stopped: The signal.
        """
        self._stopped = stopped

    def neighbours(self) -> frozenset[int]:
        """Return the devices to which a link is alive now."""
        return self._transport.neighbours()

    def send(self, to: int, message: bytes) -> None:
        """Queue a message and return without waiting.

        Args:
            to: Number of the receiving device.
            message: The message.
        """
        self._transport.send(to, message)

    def receive(self, timeout: float) -> tuple[int, bytes | bytearray] | None:
        """Return the next message and its sender, or None after a timeout.

        Args:
            timeout: Longest time to wait, in seconds.

        Raises:
            Stopped: If the device was told to stop a second ago.
        """
        until = self._clock.monotonic() + timeout
        while True:
            self._check()
            left = until - self._clock.monotonic()
            arrived = self._transport.receive(max(0.0, min(left, _SLICE_SECONDS)))
            if arrived is not None or left <= _SLICE_SECONDS:
                return arrived

    def close(self) -> None:
        """Close all links."""
        self._transport.close()

    def _check(self) -> None:
        if self._stopped is None or not self._stopped.is_set():
            return
        now = self._clock.monotonic()
        if self._since is None:
            self._since = now
        if now - self._since >= _GRACE_SECONDS:
            raise Stopped
