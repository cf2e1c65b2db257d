"""A hostile device: `python hostile.py given.json`, in its own namespace; it waits for that file.

With a certificate it is a neighbour that sends whatever it likes. Without one it tries to become a
neighbour. It prints its results as JSON.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import zenoh

from gossamer.fleet import keys
from gossamer.fleet.protocol.messages import Kind, Message
from gossamer.fleet.protocol.wire import pack
from gossamer.fleet.transport import zenoh as transport_module
from gossamer.fleet.transport.channel import HEADER
from gossamer.fleet.transport.configuration import LinkSettings, configuration

PORT = 7447
FLOOD_REPEATS = 20
FLOOD_REQUESTS = 200
JUNK_PACKETS = 50
OPEN_SOCKETS = 50


def use_lawless_configuration() -> None:
    """Configure zenoh without access rules and without a limit on messages."""

    def lawless(device: int | None, settings: LinkSettings) -> dict[str, Any]:
        config = configuration(device, settings)
        config.pop("access_control", None)
        config["transport"]["link"]["rx"]["max_message_size"] = 1 << 30
        return config

    setattr(transport_module, "configuration", lawless)  # noqa: B010 - not one of its own names


class HostilePeer:
    """A device of a fleet, with its certificate.

    It sends well-formed messages that make no sense, then messages that must be refused, and then
    packets that break the transport's own rules.
    """

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.number = given["device"]
        self.honest = given["honest"]
        self.run_id = bytes.fromhex(given["message_run"])
        self.size = given["parameters"]
        self.root = f"gossamer/{given['run']}"
        use_lawless_configuration()
        settings = LinkSettings(
            given["run"],
            tuple(given["names"]),
            Path(given["certificates"]),
            connect=tuple(f"{host}:{PORT}" for host in given["hosts"]),
            multicast=False,
            lease=given["lease"],
            largest=1 << 20,
            outgoing=600,
        )
        self.transport = transport_module.Zenoh(self.number, settings)
        self.session = self.transport._session
        # Each honest device gets its own kinds in turn: after one it ignores the next for a while.
        kinds = list(self.refused())
        self.turns = {}
        for place, to in enumerate(self.honest):
            self.turns[to] = kinds[place :: len(self.honest)]
        self.tokens = []
        for other in range(self.number):
            token = self.session.liveliness().declare_token(f"{self.root}/alive/{other}")
            self.tokens.append(token)
        self.received_model = torch.ones(self.size)

    def attack(self) -> dict[str, int]:
        """Attack until the end, and return counts."""
        counts = {"steps": 0, "sent": 0, "received": 0}
        flood_from, refused_from, lawless_from = self.given["phases"]
        while (now := self.round()) < self.given["until"]:
            counts["steps"] += 1
            counts["received"] += self.receive_all()
            for to in self.honest:
                messages = list(self.nonsense()) if now < refused_from else []
                if flood_from + to <= now < flood_from + to + 1:
                    requests = [self.without_vector(Kind.ASK)] * FLOOD_REQUESTS
                    messages = messages * FLOOD_REPEATS + requests
                if refused_from <= now:
                    turn = int((now - refused_from) / self.given["ignored"])
                    messages.append(self.turns[to][min(turn, len(self.turns[to]) - 1)]())
                for message in messages:
                    self.transport.send(to, message)
                counts["sent"] += len(messages)
                if now >= lawless_from:
                    self.send_lawless_packets(to, large=counts["steps"] % 12 == to)
            time.sleep(self.given["slot"] / 4)
        return counts

    def receive_all(self) -> int:
        """Receive all messages, and keep the last model for replays."""
        received = 0
        while arrived := self.transport.receive(0):
            received += 1
            data = arrived[1]
            if len(data) > 4 * self.size:  # a model
                elements = bytearray(data[-4 * self.size :])
                self.received_model = torch.frombuffer(elements, dtype=torch.float32)
        return received

    def round(self) -> float:
        return float((time.time() - self.given["start"]) / self.given["slot"])

    def message(self, **changes: Any) -> bytes:
        fields: dict[str, Any] = {
            "kind": Kind.MODEL,
            "run": self.run_id,
            "sender": self.number,
            "round": int(self.round()),
            "degree": 3,
            "vector": self.received_model,
        }
        return pack(Message(**{**fields, **changes}))

    def without_vector(self, kind: Kind, **changes: Any) -> bytes:
        return self.message(kind=kind, degree=0, vector=None, **changes)

    def nonsense(self) -> Iterator[bytes]:
        """Yield well-formed messages: replays, wrong rounds, acks and lists of nothing."""
        t = int(self.round())
        for ago in (0, 1, 2, 9):
            yield self.message(round=max(0, t - ago))
        for ahead in (1, 2, 7, 4_000_000_000):
            yield self.message(round=t + ahead)
        yield self.without_vector(Kind.READY, checksum=12345)
        yield self.without_vector(Kind.READY, round=t + 3, checksum=1)
        yield self.without_vector(Kind.ASK)
        yield self.without_vector(Kind.BYE, applied=tuple((k, 7) for k in range(30)))
        yield self.message(kind=Kind.START, degree=0)

    def refused(self) -> Iterator[Callable[[], bytes]]:
        """Yield functions that return a message for every reason to refuse one."""
        yield lambda: os.urandom(3000)  # magic
        yield lambda: self.with_value(float("nan"))
        yield lambda: self.message(sender=self.honest[0])
        yield lambda: self.with_value(float("-inf"))
        yield lambda: self.with_value(1e30)
        yield lambda: self.announcing(1 << 31)  # size
        yield lambda: self.message(run=bytes(16))
        yield lambda: self.message(vector=torch.ones(self.size + 1))
        yield lambda: self.message(vector=torch.ones(self.size).bfloat16())
        yield lambda: self.message(part=9)
        yield lambda: self.message()[:-1] + b"\x01"  # checksum
        yield lambda: self.announcing(4 * self.size + 4)  # length

    def with_value(self, value: float) -> bytes:
        vector = torch.ones(self.size)
        vector[self.size // 2] = value
        return self.message(vector=vector)

    def announcing(self, size: int) -> bytes:
        """Return a message whose header announces a vector of so many bytes, which are missing."""
        data = bytearray(self.message())
        data[56:64] = struct.pack("<Q", size)
        data[68:72] = struct.pack("<I", zlib.crc32(data[:68]))
        return bytes(data)

    def send_lawless_packets(self, to: int, large: bool) -> None:
        """Send packets that no device makes, in its own name and in those of others."""
        nan = self.with_value(float("nan"))
        for sender in range(self.number + 1):
            self.put(sender, to, nan, HEADER.pack(1, 0, 0, len(nan)))
        self.put(self.number, to, bytes(1000), HEADER.pack(1, 0, 0, 1 << 30))  # a chunk of 1 GB
        self.put(self.number, to, b"", b"")
        for _ in range(JUNK_PACKETS):
            self.put(self.number, to, os.urandom(200), os.urandom(HEADER.size))
        if large:
            self.put(self.number, to, bytes(64 << 20), HEADER.pack(1, 0, 0, 64 << 20))

    def put(self, sender: int, to: int, payload: bytes, header: bytes) -> None:
        for link in self.session.info.links():
            if link.auth_identifier == self.given["names"][to]:
                with suppress(zenoh.ZError):
                    self.session.put(
                        f"{self.root}/from/{sender}/to/{to}/{link.zid}",
                        payload,
                        attachment=header,
                        congestion_control=zenoh.CongestionControl.DROP,
                    )


class Intruder:
    """Sessions without a valid certificate: none, another authority's, an expired one."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        keys.check_folder = lambda *_: None
        use_lawless_configuration()
        self.sessions = []
        for place, folder in enumerate([None, *given["folders"]]):
            settings = LinkSettings(
                given["run"],
                tuple(given["names"]),
                certificates=None if folder is None else Path(folder),
                insecure=folder is None,
                listen=(f"0.0.0.0:{PORT + 1 + place}",),
                connect=tuple(f"{host}:{PORT}" for host in given["hosts"]),
                multicast=False,
                lease=given["lease"],
            )
            self.sessions.append(transport_module.Zenoh(given["device"], settings))

    def attack(self) -> dict[str, int]:
        """Attack until the end; return how many links were found and TLS handshakes refused."""
        counts = {"links": 0, "refused": 0}
        sockets: list[socket.socket] = []
        while time.time() < self.given["start"] + self.given["until"] * self.given["slot"]:
            for session in self.sessions:
                counts["links"] += len(session._session.info.links()) + len(session.neighbours())
                for to in self.given["honest"]:
                    session.send(to, os.urandom(1000))
            for host in self.given["hosts"]:
                sockets += self.plain_socket(host)
                counts["refused"] += self.is_refused_by_tls(host)
            sockets = sockets[-OPEN_SOCKETS:]
            time.sleep(self.given["slot"] / 4)
        return counts

    def plain_socket(self, host: str) -> list[socket.socket]:
        """Send junk over plain TCP; return the socket, which stays open."""
        with suppress(OSError):
            plain = socket.create_connection((host, PORT), timeout=0.2)
            plain.sendall(os.urandom(10_000))
            return [plain]
        return []

    def is_refused_by_tls(self, host: str) -> bool:
        """Return True if a TLS handshake without a certificate is refused."""
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with suppress(OSError), socket.create_connection((host, PORT), timeout=0.2) as plain:
            try:
                context.wrap_socket(plain).recv(10)
            except OSError:
                return True
        return False


def main() -> None:
    path = Path(sys.argv[1])
    while not path.exists():
        time.sleep(0.05)
    given = json.loads(path.read_text())
    attacker = HostilePeer(given) if given["certificates"] else Intruder(given)
    print(json.dumps(attacker.attack()), flush=True)
    os._exit(0)  # without waiting for queued packets


if __name__ == "__main__":
    main()
