"""Who watches a fleet: a peer that is no device, hears what devices say of themselves, and says nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from gossamer.errors import GossamerError, MissingExtra
from gossamer.fleet.access import STATUS_BYTES, Settings, configuration

if TYPE_CHECKING:
    import zenoh

_KEY = re.compile(r"/status/(0|[1-9][0-9]{0,8})")


class Observer:
    """Hears the status of the devices to which there is a link: `heard(device, status)`, in a thread of zenoh's.

    Its settings are those of a device, with a certificate in the name `observer`. It dials, and listens nowhere: there may be
    one beside a device, and many at a time. It is nobody's neighbour, and one that is slow misses what it does not take.

        with closing(Observer(settings, lambda device, status: print(device, status))):
            time.sleep(60)
    """

    def __init__(self, settings: Settings, heard: Callable[[int, bytes], None]) -> None:
        try:
            import zenoh
        except ImportError:
            raise MissingExtra("peer", "the runtime for devices") from None
        self.settings, self._hear = settings, heard
        self._root = f"gossamer/{settings.run}"
        try:
            self._session = zenoh.open(
                zenoh.Config.from_json5(json.dumps(configuration(None, settings)))
            )
        except zenoh.ZError as error:
            why = str(error).split(" at /")[0]  # where in zenoh's own source is of no use here
            raise GossamerError(f"the observer cannot join: {why}") from None
        own = zenoh.handlers.Callback(
            self._heard, indirect=False
        )  # no queue in between: it would have no bound
        self._subscriber = self._session.declare_subscriber(f"{self._root}/status/*", own)

    def close(self) -> None:
        """Leave."""
        import zenoh

        with suppress(zenoh.ZError):  # a link that does not answer; the session has given up on it
            self._session.close()

    def _heard(self, sample: zenoh.Sample) -> None:
        found = _KEY.fullmatch(str(sample.key_expr).removeprefix(self._root))
        if (
            found
            and int(found[1]) < len(self.settings.names)
            and len(sample.payload) <= STATUS_BYTES
        ):
            self._hear(int(found[1]), sample.payload.to_bytes())
