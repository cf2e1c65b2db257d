"""What a running device watches beside its rounds: its certificate and its clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from gossamer.errors import DataError
from gossamer.fleet import keys, pem
from gossamer.fleet.machine import SYSTEM_CLOCK, Clock
from gossamer.fleet.notices import Notices

_SOON = timedelta(days=14)  # before a certificate expires
_JUMP_SECONDS = 1.0  # largest adjustment of the clock that counts as no jump


def note_certificate(folder: Path, notices: Notices, now: datetime | None = None) -> None:
    """Add a notice if the certificate of a device has expired or expires soon.

    Args:
        folder: The device's folder.
        notices: The notices.
        now: The current time; by default that of the clock.
    """
    now = now or datetime.now(UTC)
    notices.remove("certificate")
    for file in (keys.CERTIFICATE, keys.AUTHORITY_CERTIFICATE):
        try:
            ends = pem.read_certificate(folder / file).not_valid_after_utc
        except DataError as error:
            notices.add("certificate", None, str(error))
            continue
        if now >= ends:
            notices.add("certificate", None, f"{folder / file} expired on {ends:%Y-%m-%d}")
        elif now >= ends - _SOON:
            notices.add("certificate", None, f"{folder / file} expires on {ends:%Y-%m-%d}")


class ClockWatch:
    """Add a notice when the clock of this machine jumps.

    Args:
        notices: The notices.
        clock: The clock.
    """

    def __init__(self, notices: Notices, clock: Clock = SYSTEM_CLOCK) -> None:
        self._notices = notices
        self._clock = clock
        self._offset = clock.time() - clock.monotonic()

    def look(self) -> None:
        """Compare the clock with one that never jumps."""
        offset = self._clock.time() - self._clock.monotonic()
        jump = offset - self._offset
        if abs(jump) > _JUMP_SECONDS:
            ahead = "forward" if jump > 0 else "back"
            self._notices.add("clock", None, f"the clock has jumped {ahead} by {abs(jump):.1f} s")
        self._offset = offset
