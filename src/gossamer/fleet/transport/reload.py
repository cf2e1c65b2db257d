"""A transport whose session is opened again when its certificates or members change.

zenoh reads the certificate of a listener and the access rules once, when a session is opened. So a
change of one of the files closes the session and opens another one with new settings. For the
neighbours this is a link that is cut for a moment: no exchange is lost or counted twice. A change
that cannot be used is reported, and the session goes on with what it has.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from gossamer.errors import GossamerError
from gossamer.fleet.notices import Notices
from gossamer.fleet.transport.configuration import LinkSettings
from gossamer.fleet.transport.zenoh import Zenoh

_POLL_SECONDS = 1.0  # period of checking the files
_RECEIVE_SECONDS = 0.25  # time until a receiver notices a new session

Stamp = tuple[tuple[int, int, int] | None, ...]


class ReloadedZenoh:
    """The `Transport` of a device, opened again when files change or when it is told to.

    Args:
        device: Number of this device.
        settings: Returns the settings of its links from the files as they are now.
        files: The files; a change that is complete for `_POLL_SECONDS` is taken up.
        notices: Where refused sessions are noted.
        on_change: Called with a sentence about each change.

    Raises:
        GossamerError: If the device cannot listen on its endpoints, or the settings cannot be used.
    """

    def __init__(
        self,
        device: int,
        settings: Callable[[], LinkSettings],
        files: Sequence[Path],
        notices: Notices | None = None,
        on_change: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.device = device
        self._settings = settings
        self._files = files
        self._notices = notices or Notices()
        self._on_change = on_change
        self._used = self._stamp()
        self._switch = threading.Lock()  # held while a session is opened or closed
        self._session: Zenoh | None = Zenoh(device, settings(), self._notices)
        self._linked = True  # False while the device rests
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="gossamer-reload", daemon=True)
        self._thread.start()

    def neighbours(self) -> frozenset[int]:
        """Return the devices to which a link is alive now."""
        session = self._session
        return frozenset() if session is None else session.neighbours()

    def send(self, to: int, message: bytes) -> None:
        """Queue a message; it is lost while there is no session.

        Args:
            to: Number of the receiving device.
            message: The message.
        """
        session = self._session
        if session is not None:
            session.send(to, message)

    def receive(self, timeout: float) -> tuple[int, bytes | bytearray] | None:
        """Return the next message and its sender, or None after a timeout.

        Args:
            timeout: Longest time to wait, in seconds.
        """
        until = time.monotonic() + timeout
        while True:
            left = max(0.0, until - time.monotonic())
            session = self._session
            if session is None:
                self._ended.wait(min(left, _RECEIVE_SECONDS))
            else:
                message = session.receive(min(left, _RECEIVE_SECONDS))
                if message is not None:
                    return message
            if left <= _RECEIVE_SECONDS:
                return None

    def publish_status(self, status: bytes) -> None:
        """Send the status of this device to all observers.

        Args:
            status: The status.
        """
        session = self._session
        if session is not None:
            session.publish_status(status)

    def note_problems(self) -> None:
        """Add notices of identities that are in use twice, and of strangers."""
        session = self._session
        if session is not None:
            session.note_problems()

    def set_linked(self, linked: bool) -> None:
        """Close all links while the device rests, or open them again.

        Args:
            linked: False to close them.
        """
        with self._switch:
            self._linked = linked
            if not linked:
                self._close_session()
        if linked:
            self._open_session()

    def close(self) -> None:
        """Close all links."""
        self._ended.set()
        self._thread.join()
        with self._switch:
            self._close_session()

    def _watch(self) -> None:
        last = self._used
        while not self._ended.wait(_POLL_SECONDS):
            stamp = self._stamp()
            if stamp != self._used and stamp == last:  # nobody is writing them
                self._used = stamp
                self._reload()
            last = stamp
            if self._session is None:
                self._open_session()  # its port was not free yet

    def _reload(self) -> None:
        """Open another session if the files can be used."""
        try:
            settings = self._settings()
        except GossamerError as error:
            self._on_change(f"the change of its certificates or members is not used: {error}")
            return
        with self._switch:
            if self._linked:
                self._close_session()
                self._try_to_open(settings)
        self._on_change("certificates and members were read again")

    def _open_session(self) -> None:
        with self._switch:
            if self._session is None and self._linked and not self._ended.is_set():
                with suppress(GossamerError):
                    self._try_to_open(self._settings())

    def _try_to_open(self, settings: LinkSettings) -> None:
        with suppress(GossamerError):  # then `_watch` tries again
            self._session = Zenoh(self.device, settings, self._notices)

    def _close_session(self) -> None:
        session = self._session
        self._session = None
        if session is not None:
            session.close()

    def _stamp(self) -> Stamp:
        """Return what changes when a file is replaced."""
        found: list[tuple[int, int, int] | None] = []
        for path in self._files:
            try:
                info = path.stat()
            except OSError:
                found.append(None)
                continue
            found.append((info.st_mtime_ns, info.st_size, info.st_ino))
        return tuple(found)
