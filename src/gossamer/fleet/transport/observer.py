"""A peer that only listens: it receives the status of the devices and sends nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from gossamer.errors import GossamerError, MissingExtra
from gossamer.fleet.transport.configuration import STATUS_BYTES, LinkSettings, configuration
from gossamer.fleet.transport.zenoh import close_session, reason

if TYPE_CHECKING:
    import zenoh

_STATUS_KEY = re.compile(r"/status/(0|[1-9][0-9]{0,8})")


class Observer:
    """Receive the status of all devices to which there is a link.

    An observer dials and does not listen, so it can run beside a device, and several can run at a
    time. It is no device's neighbour. A slow observer misses messages and delays nobody.

    Args:
        settings: Settings as those of a device, with a certificate in the name `observer`.
        on_status: Called with (device, status) in a thread of zenoh.

    Raises:
        MissingExtra: If zenoh is not installed.
        GossamerError: If the observer cannot join the network.

    Example:
        with closing(Observer(settings, lambda device, status: print(device, status))):
            time.sleep(60)
    """

    def __init__(self, settings: LinkSettings, on_status: Callable[[int, bytes], None]) -> None:
        try:
            import zenoh
        except ImportError:
            raise MissingExtra("peer", "the runtime for devices") from None
        self.settings = settings
        self._on_status = on_status
        self._root = f"gossamer/{settings.run}"
        try:
            self._session = zenoh.open(
                zenoh.Config.from_json5(json.dumps(configuration(None, settings)))
            )
        except zenoh.ZError as error:
            raise GossamerError(f"the observer cannot join: {reason(error)}") from None
        # No queue in between: it would be unbounded.
        callback = zenoh.handlers.Callback(self._on_sample, indirect=False)
        self._subscriber = self._session.declare_subscriber(f"{self._root}/status/*", callback)

    def close(self) -> None:
        """Leave the network."""
        close_session(self._session)

    def _on_sample(self, sample: zenoh.Sample) -> None:
        found = _STATUS_KEY.fullmatch(str(sample.key_expr).removeprefix(self._root))
        if not found or len(sample.payload) > STATUS_BYTES:
            return
        device = int(found[1])
        if device < len(self.settings.names):
            self._on_status(device, sample.payload.to_bytes())
