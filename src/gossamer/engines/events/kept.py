"""Messages that were cut and wait for the next contact of the same two devices."""

from __future__ import annotations

from torch import Tensor

from gossamer.engines.events.timeline_state import restore, tensors_of

_STATE = {"kept_partner": int, "kept_bytes": float, "resumed_bytes": float}


class KeptMessages:
    """Who keeps a message for whom, and how much of it has been sent. A device keeps one at most.

    Args:
        devices: Number of devices.
        both: True if both devices of an exchange send, and so keep.

    Example:
        >>> kept = KeptMessages(3, both=True)
        >>> kept.keep((0, 2), 100.0)
        >>> kept.partner(2), kept.keepers(2), kept.resume((0, 2))
        (0, (2, 0), 100.0)
    """

    def __init__(self, devices: int, both: bool) -> None:
        self._both = both
        self._kept_partner = [-1] * devices
        self._kept_bytes = [0.0] * devices  # bytes that earlier contacts have carried
        self._resumed_bytes = [0.0] * devices  # the same for the message in transit

    def devices(self) -> list[int]:
        """Return the devices that keep a message."""
        return [device for device, partner in enumerate(self._kept_partner) if partner >= 0]

    def partner(self, device: int) -> int:
        """Return for whom a device keeps a message; -1 if it keeps none.

        Args:
            device: The device.
        """
        return self._kept_partner[device]

    def keepers(self, device: int) -> tuple[int, ...]:
        """Return the devices that keep a message of the exchange that a device keeps.

        Args:
            device: The device.
        """
        if self._kept_partner[device] < 0:
            return ()
        return (device, self._kept_partner[device]) if self._both else (device,)

    def keep(self, pair: tuple[int, int], sent: float) -> None:
        """Keep an exchange that was cut.

        Args:
            pair: The device that sends, and its partner.
            sent: Bytes of a message that contacts have carried so far.
        """
        i, j = pair
        for device, partner in ((i, j), (j, i)) if self._both else ((i, j),):
            self._kept_partner[device] = partner
            self._kept_bytes[device] = sent
            self._resumed_bytes[device] = 0.0

    def forget(self, device: int) -> float:
        """Give up the message that a device keeps. Return how many bytes of it were sent.

        Args:
            device: The device.
        """
        self._kept_partner[device] = -1
        return self._kept_bytes[device]

    def resume(self, keepers: tuple[int, ...]) -> float:
        """Put an exchange on its way again. Return how many bytes of a message were sent before.

        Args:
            keepers: The devices that keep it.
        """
        for device in keepers:
            self._kept_partner[device] = -1
            self._resumed_bytes[device] = self._kept_bytes[device]
        return self._kept_bytes[keepers[0]]

    def sent_before(self, device: int) -> float:
        """Return how many bytes of the message on its way earlier contacts have carried.

        Args:
            device: The device that sends it.
        """
        return self._resumed_bytes[device]

    def arrived(self, device: int) -> None:
        """Note that the message of a device has arrived.

        Args:
            device: The device.
        """
        self._resumed_bytes[device] = 0.0

    def tensors(self) -> dict[str, Tensor]:
        """Return the state, one row per device."""
        return tensors_of(self, _STATE)

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over the state of a snapshot.

        Args:
            tensors: What `tensors` returned; others are ignored.

        Raises:
            DataError: If they are missing.
        """
        restore(self, _STATE, tensors)
