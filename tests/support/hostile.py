"""A device that means harm: `python hostile.py given.json`, in its own network; it waits for that file.

What it has come to is printed as JSON.

With a certificate ("peer") it is a neighbour, and says whatever it likes. Without ("stranger") it tries to become one.
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
from gossamer.fleet import zenoh as peer
from gossamer.fleet.line import HEADER
from gossamer.fleet.wire import Kind, Message, pack

PORT = 7447


def rude(configuration: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """The configuration of a device that keeps no rules, and checks nothing of itself."""

    def changed(*words: Any) -> dict[str, Any]:
        whole = configuration(*words)
        whole.pop("access_control", None)
        whole["transport"]["link"]["rx"]["max_message_size"] = 1 << 30
        return whole

    return changed


class Peer:
    """A device of a fleet, with its certificate. It talks nonsense; then what must be refused; then it forgets all manners."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given, self.number, self.honest = given, given["device"], given["honest"]
        self.run, self.size = bytes.fromhex(given["run"]), given["parameters"]
        peer.configuration = rude(peer.configuration)
        connect = tuple(f"{host}:{PORT}" for host in given["hosts"])
        names, certificates = tuple(given["names"]), Path(given["certificates"])
        more = {"multicast": False, "lease": given["lease"], "largest": 1 << 20, "outgoing": 600}
        self.transport = peer.Zenoh(
            self.number, peer.Settings(given["run"], names, certificates, connect=connect, **more)
        )
        self.session, self.root = self.transport._session, f"gossamer/{given['run']}"
        # What each is to refuse, in turn: who has refused ignores the next for a while.
        kinds = list(self.refused())
        self.turns = {to: kinds[place :: len(self.honest)] for place, to in enumerate(self.honest)}
        self.tokens = [
            self.session.liveliness().declare_token(f"{self.root}/alive/{other}")
            for other in range(self.number)
        ]
        self.overheard = torch.ones(self.size)

    def work(self) -> dict[str, int]:
        done = dict.fromkeys(("steps", "sent", "received"), 0)
        nonsense, refused, rude = self.given["phases"]
        while (now := self.round()) < self.given["until"]:
            done["steps"] += 1
            while came := self.transport.receive(0):
                done["received"] += 1
                if len(came[1]) > 4 * self.size:  # a model
                    self.overheard = torch.frombuffer(
                        bytearray(came[1][-4 * self.size :]), dtype=torch.float32
                    )
            for to in self.honest:
                messages = list(self.nonsense()) if now < refused else []
                if nonsense + to <= now < nonsense + to + 1:
                    messages = [*messages * 20, *[self.without_vector(Kind.ASK)] * 200]  # a flood
                if refused <= now:
                    turn = min(
                        int((now - refused) / self.given["ignored"]), len(self.turns[to]) - 1
                    )
                    messages.append(self.turns[to][turn]())
                for message in messages:
                    self.transport.send(to, message)
                done["sent"] += len(messages)
                if now >= rude:
                    self.past_manners(to, large=done["steps"] % 12 == to)
            time.sleep(self.given["slot"] / 4)
        return done

    def round(self) -> float:
        return (time.time() - self.given["start"]) / self.given["slot"]

    def message(self, **changes: Any) -> bytes:
        fields = {
            "kind": Kind.MODEL,
            "run": self.run,
            "sender": self.number,
            "round": int(self.round()),
            "degree": 3,
        }
        return pack(Message(**{**fields, "vector": self.overheard, **changes}))

    def without_vector(self, kind: Kind, **changes: Any) -> bytes:
        return self.message(kind=kind, degree=0, vector=None, **changes)

    def nonsense(self) -> Iterator[bytes]:
        """What has the form of a message: replays of what it has heard, rounds that are over or far away, words for nothing."""
        t = int(self.round())
        yield from (self.message(round=max(0, t - k)) for k in (0, 1, 2, 9))
        yield from (self.message(round=t + k) for k in (1, 2, 7, 4_000_000_000))
        yield self.without_vector(Kind.READY, checksum=12345)
        yield self.without_vector(Kind.READY, round=t + 3, checksum=1)
        yield self.without_vector(Kind.ASK)
        yield self.without_vector(Kind.BYE, applied=tuple((k, 7) for k in range(30)))
        yield self.message(kind=Kind.START, degree=0)

    def refused(self) -> Iterator[Callable[[], bytes]]:
        """A message for every reason to refuse one."""
        yield lambda: os.urandom(3000)  # magic
        yield lambda: self.filled(float("nan"))
        yield lambda: self.message(sender=self.honest[0])
        yield lambda: self.filled(float("-inf"))
        yield lambda: self.filled(1e30)
        yield lambda: self.announced(1 << 31)  # size
        yield lambda: self.message(run=bytes(16))
        yield lambda: self.message(vector=torch.ones(self.size + 1))
        yield lambda: self.message(vector=torch.ones(self.size).bfloat16())
        yield lambda: self.message(part=9)
        yield lambda: self.message()[:-1] + b"\x01"  # checksum
        yield lambda: self.announced(4 * self.size + 4)  # length

    def filled(self, value: float) -> bytes:
        vector = torch.ones(self.size)
        vector[self.size // 2] = value
        return self.message(vector=vector)

    def announced(self, size: int) -> bytes:
        """A header that says how many bytes will follow: they do not."""
        data = bytearray(self.message())
        data[56:64] = struct.pack("<Q", size)
        data[68:72] = struct.pack("<I", zlib.crc32(data[:68]))
        return bytes(data)

    def past_manners(self, to: int, large: bool) -> None:
        """Packets as no device makes them, in its own name and in another's."""
        nan, numbers = self.filled(float("nan")), [1, 0, 0]
        for sender in range(self.number + 1):
            self.put(sender, to, nan, HEADER.pack(*numbers, len(nan)))
        self.put(self.number, to, bytes(1000), HEADER.pack(*numbers, 1 << 30))  # a part of 1 GB
        self.put(self.number, to, b"", b"")
        for _ in range(50):
            self.put(self.number, to, os.urandom(200), os.urandom(HEADER.size))
        if large:
            self.put(self.number, to, bytes(64 << 20), HEADER.pack(*numbers, 64 << 20))

    def put(self, sender: int, to: int, payload: bytes, header: bytes) -> None:
        for link in self.session.info.links():
            if link.auth_identifier == self.given["names"][to]:
                key = f"{self.root}/from/{sender}/to/{to}/{link.zid}"
                with suppress(zenoh.ZError):
                    self.session.put(
                        key,
                        payload,
                        attachment=header,
                        congestion_control=zenoh.CongestionControl.DROP,
                    )


def strangers(given: dict[str, Any]) -> dict[str, Any]:
    """No certificate, another authority's, one that has expired, none of TLS: how many of them found a neighbour."""
    sockets, links, refused = [], 0, 0
    keys.check_folder = lambda *_: None
    peer.configuration = rude(peer.configuration)
    connect = tuple(f"{host}:{PORT}" for host in given["hosts"])
    sessions = []
    for place, folder in enumerate([None, *given["folders"]]):
        security: dict[str, Any] = (
            {"insecure": True} if folder is None else {"certificates": Path(folder)}
        )
        listen = (f"0.0.0.0:{PORT + 1 + place}",)
        settings = peer.Settings(
            given["run"],
            tuple(given["names"]),
            listen=listen,
            connect=connect,
            multicast=False,
            lease=given["lease"],
            **security,
        )
        sessions.append(peer.Zenoh(given["device"], settings))
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    while time.time() < given["start"] + given["until"] * given["slot"]:
        for session in sessions:
            links += len(session._session.info.links()) + len(session.neighbours())
            for to in given["honest"]:
                session.send(to, os.urandom(1000))
        for host in given["hosts"]:
            with suppress(OSError):
                plain = socket.create_connection((host, PORT), timeout=0.2)
                plain.sendall(os.urandom(10_000))
                sockets.append(plain)  # and is kept open
            with suppress(OSError), socket.create_connection((host, PORT), timeout=0.2) as plain:
                try:
                    context.wrap_socket(plain).recv(10)
                except OSError:
                    refused += 1
        sockets = sockets[-50:]
        time.sleep(given["slot"] / 4)
    return {"links": links, "refused": refused}


if __name__ == "__main__":
    while not Path(sys.argv[1]).exists():
        time.sleep(0.05)
    given = json.loads(Path(sys.argv[1]).read_text())
    print(json.dumps(Peer(given).work() if given["certificates"] else strangers(given)), flush=True)
    os._exit(0)  # whatever is still queued
