"""When a device takes no part: a pause, quiet hours, a low battery, or a budget that is used up.

pause        a file in the device's folder; while it exists, the device takes no part
battery      a file in the device's folder with the charge in percent, which another program writes
budget.json  the bytes of the current hour and of the largest round, which a restart does not forget
"""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal

from gossamer._core.disk import SYSTEM_DISK, Disk
from gossamer._core.files import write_atomically
from gossamer.errors import InputError
from gossamer.fleet.machine import SYSTEM_CLOCK, Clock

Why = Literal["", "paused", "quiet hours", "battery", "budget"]

PAUSE = "pause"
BATTERY = "battery"
BUDGET = "budget.json"
_HOUR = 3600.0
_HOURS = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])")
_LARGEST = 100  # bytes of the battery's file that are read


def minutes_of(hours: str) -> tuple[int, int]:
    """Return the begin and the end of quiet hours, in minutes since midnight.

    Args:
        hours: As "22:00-06:30", by the device's local time.

    Raises:
        InputError: If it is malformed, or begin and end are the same.

    Example:
        >>> minutes_of("22:00-06:30")
        (1320, 390)
    """
    found = _HOURS.fullmatch(hours)
    if found:
        begin = 60 * int(found[1]) + int(found[2])
        end = 60 * int(found[3]) + int(found[4])
        if begin != end:
            return begin, end
    raise InputError("quiet", hours, 'times of day as "22:00-06:30"')


class Rest:
    """Says whether a device may take part now.

    Args:
        folder: The device's folder.
        budget: Megabytes per hour, sent and received together; 0: no limit.
        quiet: Times of day at which the device takes no part, as "22:00-06:30".
        battery: Percent below which it takes no part, if there is a file `battery`.
        clock: The clocks of the device.
        disk: Its disk.
    """

    def __init__(
        self,
        folder: Path,
        budget: float = 0.0,
        quiet: tuple[str, ...] = (),
        battery: float = 0.0,
        clock: Clock = SYSTEM_CLOCK,
        disk: Disk = SYSTEM_DISK,
    ) -> None:
        self._folder = folder
        self._budget = 1e6 * budget
        self._quiet = [minutes_of(hours) for hours in quiet]
        self._battery = battery
        self._clock = clock
        self._disk = disk
        self._counted = 0  # bytes at the last call
        self._most = 0  # bytes of a round, at most so far
        self._used = 0  # bytes of the hour
        self._hour = int(clock.time() // _HOUR)
        self._read_budget()

    def why(self, total_bytes: int) -> Why:
        """Return why the device takes no part in the next round; "" if it does.

        Args:
            total_bytes: Bytes that were sent and received since the node was started.
        """
        over = self._over_budget(total_bytes)
        if (self._folder / PAUSE).exists():
            return "paused"
        if self._is_quiet():
            return "quiet hours"
        if self._battery_is_low():
            return "battery"
        return "budget" if over else ""

    def _is_quiet(self) -> bool:
        now = time.localtime(self._clock.time())
        minute = 60 * now.tm_hour + now.tm_min
        for begin, end in self._quiet:
            if begin < end and begin <= minute < end:
                return True
            if begin > end and (minute >= begin or minute < end):
                return True
        return False

    def _battery_is_low(self) -> bool:
        """Return True if the file says so. A file that is missing or unreadable says nothing."""
        if not self._battery:
            return False
        try:
            with (self._folder / BATTERY).open("rb") as file:
                charge = float(file.read(_LARGEST).strip().rstrip(b"%"))
        except (OSError, ValueError):
            return False
        return charge < self._battery

    def _over_budget(self, total_bytes: int) -> bool:
        """Return True if another round like the largest so far would exceed the budget."""
        if not self._budget:
            return False
        new = total_bytes - self._counted
        self._counted = total_bytes
        self._most = max(self._most, new)
        hour = int(self._clock.time() // _HOUR)
        if hour != self._hour:
            self._hour = hour
            self._used = 0
        self._used += new
        if new:
            kept = {"hour": self._hour, "bytes": self._used, "largest": self._most}
            content = json.dumps(kept).encode()
            write_atomically(self._folder / BUDGET, content, sync=False, disk=self._disk)
        return self._used + self._most > self._budget

    def _read_budget(self) -> None:
        """Restore what was counted before a restart."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads((self._folder / BUDGET).read_bytes())
            self._most = int(found["largest"])
            if int(found["hour"]) == self._hour:
                self._used = int(found["bytes"])
