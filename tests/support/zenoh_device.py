"""One device on zenoh, without torch: it executes commands, one JSON list per line.

`python zenoh_device.py given.json`, where the JSON has the settings of its links. "config_changes"
makes it an intruder: its own certificate is not checked, and zenoh's configuration is changed.
"""

from __future__ import annotations

import json
import secrets
import sys
import time
from pathlib import Path
from typing import Any

import zenoh

from gossamer.errors import InputError
from gossamer.fleet import keys
from gossamer.fleet.transport import observer as observer_module
from gossamer.fleet.transport import zenoh as transport_module
from gossamer.fleet.transport.channel import HEADER
from gossamer.fleet.transport.configuration import LinkSettings, configuration
from gossamer.fleet.transport.observer import Observer
from gossamer.fleet.transport.zenoh import Zenoh

PING_SECONDS = 20


def change_configuration(changes: dict[str, Any]) -> None:
    """Replace values in zenoh's configuration, each by its path, and check no certificate."""
    original = configuration

    def changed(device: int | None, settings: LinkSettings) -> dict[str, Any]:
        config = original(device, settings)
        for path, value in changes.items():
            *outer, last = path.split("/")
            inner = config
            for name in outer:
                inner = inner.setdefault(name, {})
            inner[last] = value
        return config

    for module, name, replacement in (
        (keys, "check_folder", lambda *_: None),
        (transport_module, "configuration", changed),
        (observer_module, "configuration", changed),
    ):
        setattr(module, name, replacement)


def message(size: int, mark: int) -> bytes:
    return bytes([mark]) * size


class Commands:
    """Commands that every peer has, device or observer."""

    def __init__(self, session: zenoh.Session) -> None:
        self.session = session
        self._overheard: set[str] = set()
        self._declared: list[object] = []

    def links(self) -> list[Any]:
        return sorted({link.auth_identifier for link in self.session.info.links()}, key=str)

    def put(self, key: str, size: int, *header: int) -> None:
        """Put a packet with zenoh itself. A key that ends with /to/0 gets device 0's session."""
        for link in self.session.info.links():
            if key.endswith(f"/to/{(link.auth_identifier or '-')[1:]}"):
                key = f"{key}/{link.zid}"
        self.session.put(key, bytes(size), attachment=HEADER.pack(*header), express=True)

    def put_many(self, key: str, seconds: float, size: int) -> int:
        """Put packets, each a message, as fast as possible; return how many."""
        until = time.monotonic() + seconds
        count = 0
        while time.monotonic() < until:
            self.put(key, size, count % 2**32, 0, 0, size)
            count += 1
        return count

    def subscribe(self, *expressions: str) -> None:
        """Subscribe with zenoh itself."""

        def on_sample(sample: zenoh.Sample) -> None:
            self._overheard.add(str(sample.key_expr))

        callback = zenoh.handlers.Callback(on_sample, indirect=False)
        remote = zenoh.Locality.REMOTE
        for key in expressions:
            declared = self.session.declare_subscriber(key, callback, allowed_origin=remote)
            self._declared.append(declared)

    def overheard(self) -> list[str]:
        return sorted(self._overheard)

    def declare_token(self, key: str) -> None:
        self._declared.append(self.session.liveliness().declare_token(key))

    def zid(self) -> str:
        return str(self.session.zid())

    def open_sessions(self, count: int, number: int, *dialled: str) -> int:
        """Open further sessions with this certificate, in ids that end with a number."""
        for _ in range(count):
            config = self.configuration()
            config["id"] = f"{secrets.randbits(60) | 1 << 60:x}{number:08x}"
            config["listen"]["endpoints"] = []
            config["connect"]["endpoints"] = [f"tls/{endpoint}" for endpoint in dialled]
            self._declared.append(zenoh.open(zenoh.Config.from_json5(json.dumps(config))))
        return len(self._declared)

    def configuration(self) -> dict[str, Any]:
        raise NotImplementedError

    def peak_memory(self) -> int:
        """Return the largest memory of this process, in kB."""
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1])
        raise AssertionError("no VmHWM in /proc/self/status")


class DeviceCommands(Commands):
    """Commands of a device."""

    def __init__(self, device: int, settings: LinkSettings) -> None:
        self.transport = Zenoh(device, settings)
        super().__init__(self.transport._session)

    def configuration(self) -> dict[str, Any]:
        return configuration(self.transport.device, self.transport.settings)

    def notices(self) -> list[Any]:
        self.transport.note_problems()
        return [[one["kind"], one["device"]] for one in self.transport._notices.entries()]

    def neighbours(self) -> list[int]:
        return sorted(self.transport.neighbours())

    def counts(self) -> dict[str, int]:
        return dict(self.transport.counts)

    def send(self, to: int, size: int, mark: int) -> None:
        self.transport.send(to, message(size, mark))

    def receive(self, timeout: float) -> list[Any] | None:
        """Return sender, size, mark, and whether all bytes are that mark."""
        arrived = self.transport.receive(timeout)
        if arrived is None:
            return None
        sender, data = arrived
        return [sender, len(data), data[0], data == message(len(data), data[0])]

    def ping(self, to: int, count: int, size: int) -> int:
        """Send messages to a device that echoes them; return how many came back."""
        back = 0
        for number in range(count):
            sent = message(size, number % 251)
            self.transport.send(to, sent)
            while (arrived := self.transport.receive(PING_SECONDS)) and arrived[0] != to:
                pass
            back += arrived == (to, sent)
        return back

    def echo(self, count: int) -> bool:
        for _ in range(count):
            arrived = self.transport.receive(PING_SECONDS)
            if arrived is None:
                return False
            self.transport.send(arrived[0], bytes(arrived[1]))
        return True

    def flood(self, to: int, seconds: float, size: int) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.transport.send(to, message(size, 7))
            time.sleep(0.002)

    def stop_reading(self, device: int) -> None:
        """Accept no packet of a device any more. The link to it stays alive."""
        channel: Any = self.transport._channels[device]
        channel.on_packet = lambda *_: time.sleep(10**6)

    def publish_status(self, size: int, mark: int) -> str | None:
        try:
            self.transport.publish_status(message(size, mark))
        except InputError as error:
            return str(error)
        return None

    def close(self) -> None:
        self.transport.close()


class ObserverCommands(Commands):
    """Commands of an observer."""

    def __init__(self, settings: LinkSettings) -> None:
        self._statuses: list[list[int]] = []
        self.observer = Observer(settings, self._on_status)
        super().__init__(self.observer._session)

    def configuration(self) -> dict[str, Any]:
        return configuration(None, self.observer.settings)

    def statuses(self) -> list[list[int]]:
        """Return device, size and mark of the statuses received since the last call."""
        arrived = list(self._statuses)
        del self._statuses[: len(arrived)]
        return arrived

    def close(self) -> None:
        self.observer.close()

    def _on_status(self, device: int, data: bytes) -> None:
        self._statuses.append([device, len(data), data[0]])


def main() -> None:
    given = json.loads(sys.argv[1])
    changes = given.pop("config_changes", None)
    if changes is not None:
        change_configuration(changes)
    device = given.pop("device")
    certificates = given.pop("certificates", None)
    given["names"] = tuple(given["names"])
    given["connect"] = tuple(given["connect"])
    settings = LinkSettings(**given, certificates=Path(certificates) if certificates else None)
    commands: Any = (
        ObserverCommands(settings) if device is None else DeviceCommands(device, settings)
    )
    assert "torch" not in sys.modules, "importing torch would take most of the time"
    print("ready", flush=True)
    for line in sys.stdin:
        name, *words = json.loads(line)
        print(json.dumps(getattr(commands, name)(*words)), flush=True)
    commands.close()
    print("closed", flush=True)


if __name__ == "__main__":
    main()
