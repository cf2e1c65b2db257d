"""What is read from a log: contacts or fixes, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, field

from gossamer._core.arguments import checked
from gossamer.network.base import FloatArray, IntArray


@checked
@dataclass(frozen=True, eq=False)
class ContactLog:
    """The contacts of a log.

    Attributes:
        names: Names of the devices in the order of their numbers.
        a: Number of the first device of each contact.
        b: Number of the second device.
        begin: Time at which each contact begins, in seconds.
        end: Time at which it ends; equal to `begin` if the log has moments only.
        absolute: True if times are seconds since 1970 (UTC), False if since an unknown moment.
        groups: What else the log says of the devices: by property, one value per device.
        notes: What was assumed in reading the log, in words.
        listed_once: True if the log lists a contact once for both directions.
    """

    names: tuple[str, ...]
    a: IntArray
    b: IntArray
    begin: FloatArray
    end: FloatArray
    absolute: bool
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    listed_once: bool = False

    def __len__(self) -> int:
        return len(self.a)


@checked
@dataclass(frozen=True, eq=False)
class PositionLog:
    """The fixes of a log.

    Attributes:
        names: Names of the devices in the order of their numbers.
        device: Number of the device of each fix.
        time: Time of each fix, in seconds.
        position: Position of each fix [fixes, 2]: x and y, or latitude and longitude.
        absolute: True if times are seconds since 1970 (UTC).
        geographic: True if the log says that positions are latitude and longitude in degrees.
        notes: What was assumed in reading the log, in words.
    """

    names: tuple[str, ...]
    device: IntArray
    time: FloatArray
    position: FloatArray
    absolute: bool
    geographic: bool
    notes: tuple[str, ...] = ()
