"""The settings of a device's links, and zenoh's configuration made from them."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gossamer._core import checks
from gossamer.errors import DataError, InputError, Unavailable
from gossamer.fleet import keys, pem
from gossamer.fleet.transport.access import device_rules, observer_rules
from gossamer.fleet.transport.channel import BATCH_BYTES, CHUNK_BYTES, QUEUE_ACKS, QUEUE_BATCHES

STATUS_BYTES = 4096  # largest status of a device
DEVICE_DIGITS = 8  # hexadecimal digits of the device's number, at the end of zenoh's session id
OBSERVER_NUMBER = 16**DEVICE_DIGITS - 1  # device number in the session ids of observers
_RUN = re.compile(r"[a-z0-9-]{1,64}")
_ENDPOINT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}")
_WAIT_BEFORE_CLOSE = 100_000  # microseconds


@dataclass(frozen=True)
class LinkSettings:
    """The settings of a device's links.

    Args:
        run: Name of the run.
        names: The name in the certificate of each device, by number.
        certificates: The device's folder as `keys.make_certificate` writes it.
        insecure: True to use plain TCP without certificates, on a test bench.
        observer: The name in the certificate of observers.
        listen: Endpoints host:port on which to listen.
        connect: Endpoints to dial. It is enough if one of two devices dials the other.
        multicast: True to find neighbours on the local network.
        interface: Network interface for multicast; "auto": all that are up at the start.
        lease: Seconds of silence after which a link is dead.
        largest: Largest message in bytes.
        outgoing: Messages that may wait for a neighbour; beyond that the oldest is dropped.
        incoming: Messages of a neighbour that may wait to be received, with at most twice `largest`
            bytes; beyond that the oldest is dropped.
        refused: Names of devices to which there are no links: they were removed or revoked.

    Raises:
        InputError: If a setting is out of range.

    Example:
        LinkSettings("a1", ("n0", "n1"), Path("n0"), connect=("10.0.0.2:7447",))
    """

    run: str
    names: tuple[str, ...]
    certificates: Path | None = None
    insecure: bool = False
    observer: str = "observer"
    listen: tuple[str, ...] = ("0.0.0.0:7447",)
    connect: tuple[str, ...] = ()
    multicast: bool = True
    interface: str = "auto"
    lease: float = 1.0
    largest: int = 64 << 20
    outgoing: int = 4
    incoming: int = 8
    refused: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not _RUN.fullmatch(self.run):
            raise InputError("run", self.run, "1 to 64 of a-z, 0-9 and '-'")
        if len(self.names) < 2 or len(set(self.names)) != len(self.names):
            raise InputError("names", self.names, "two different names or more")
        if not self.observer or self.observer in self.names:
            raise InputError("observer", self.observer, "a name that no device has")
        if self.certificates is None and not self.insecure:
            raise InputError(
                "certificates",
                None,
                "the folder of the device's certificate, or insecure = true on a bench",
            )
        if not self.listen:
            raise InputError("listen", self.listen, "at least one host:port")
        for field in ("listen", "connect"):
            for endpoint in getattr(self, field):
                if not _ENDPOINT.fullmatch(endpoint):
                    raise InputError(field, endpoint, "host:port, such as 10.0.0.2:7447")
        checks.number("lease", self.lease, least=0.2, most=60, noun="seconds")
        checks.whole("largest", self.largest, 1, (1 << 32) - 1, "a whole number of bytes")
        checks.whole("outgoing", self.outgoing, 1, 1000)
        checks.whole("incoming", self.incoming, 1, 1000)


def configuration(device: int | None, settings: LinkSettings) -> dict[str, Any]:
    """Return zenoh's configuration of a device or an observer.

    Args:
        device: Number of the device; None for an observer.
        settings: Settings of its links.

    Raises:
        DataError: If the certificate cannot be used.
    """
    protocol = "tcp" if settings.insecure else "tls"
    lease = round(1000 * settings.lease)  # milliseconds
    listen = []
    if device is not None:
        listen = [f"{protocol}/{endpoint}" for endpoint in settings.listen]
    link = _link(device, protocol, lease)
    config: dict[str, Any] = {
        "mode": "peer",
        "id": _session_id(device),
        "listen": {"endpoints": listen},
        "connect": {
            "endpoints": [f"{protocol}/{endpoint}" for endpoint in settings.connect],
            "timeout_ms": -1,  # retry forever in the background; 0 would be one attempt
            "exit_on_failure": False,
            "retry": {
                "period_init_ms": lease // 4,
                "period_max_ms": lease,
                "period_increase_factor": 2,
            },
        },
        "open": {"return_conditions": {"connect_scouted": False, "declares": False}},
        "scouting": _scouting(device, settings),
        "transport": {
            "link": link,
            "unicast": {
                "open_timeout": 2 * lease,
                "accept_timeout": 2 * lease,
                # Two for each name, as `sessions` has it; some more, until these are refused.
                "max_sessions": 2 * len(settings.names) + 8,
            },
            "shared_memory": {"enabled": False},
        },
    }
    if settings.certificates is not None and not settings.insecure:
        name = settings.observer if device is None else settings.names[device]
        link["tls"] = _tls(settings.certificates, name)
        config["access_control"] = access_rules(device, settings)
    return config


def access_rules(device: int | None, settings: LinkSettings) -> dict[str, Any]:
    """Return zenoh's access rules of a device or an observer.

    Args:
        device: Number of the device; None for an observer.
        settings: Settings of its links.
    """
    others = {}
    for other, name in enumerate(settings.names):
        if other != device and name not in settings.refused:
            others[other] = name
    if device is None:
        return observer_rules(settings.run, others)
    return device_rules(settings.run, others, device, settings.observer)


def _session_id(device: int | None) -> str:
    """Return a random id that ends with the number of the device."""
    number = OBSERVER_NUMBER if device is None else device
    return f"{secrets.randbits(60) | 1 << 60:x}{number:0{DEVICE_DIGITS}x}"


def _link(device: int | None, protocol: str, lease: int) -> dict[str, Any]:
    largest = STATUS_BYTES if device is None else CHUNK_BYTES
    return {
        "protocols": [protocol],
        "tx": {
            "lease": lease,
            "keep_alive": 4,
            "batch_size": BATCH_BYTES,
            # Nothing waits or is dropped while all keep to their windows: see channel.py.
            "queue": {
                "size": {"data": QUEUE_BATCHES, "interactive_high": QUEUE_ACKS},
                "congestion_control": {
                    "block": {"wait_before_close": _WAIT_BEFORE_CLOSE},
                    "drop": {"wait_before_drop": 0},
                },
            },
        },
        "rx": {"max_message_size": largest + BATCH_BYTES},
    }


def _scouting(device: int | None, settings: LinkSettings) -> dict[str, Any]:
    # One of two devices dials the other. An observer, which nobody can dial, always does.
    strategy = "always" if device is None else "greater-zid"
    return {
        "multicast": {
            "enabled": settings.multicast,
            "interface": settings.interface,
            "autoconnect": ["peer"],
            "autoconnect_strategy": {"peer": {"to_peer": strategy}},
        },
        # Gossip would make neighbours of neighbours known, which are not neighbours.
        "gossip": {"enabled": False, "autoconnect": []},
    }


def _begins_later(folder: Path) -> bool:
    """Return True if the certificates of a device begin later by the clock of this machine."""
    try:
        files = (keys.AUTHORITY_CERTIFICATE, keys.CERTIFICATE)
        begins = [pem.read_certificate(folder / file).not_valid_before_utc for file in files]
    except DataError:
        return False
    return datetime.now(UTC) < max(begins)


def _tls(folder: Path, name: str) -> dict[str, Any]:
    if problem := keys.check_folder(folder, name):
        kind = Unavailable if _begins_later(folder) else DataError
        raise kind(problem)
    key = str(folder / keys.KEY)
    certificate = str(folder / keys.CERTIFICATE)
    return {
        "root_ca_certificate": str(folder / keys.AUTHORITY_CERTIFICATE),
        "enable_mtls": True,
        "listen_private_key": key,
        "listen_certificate": certificate,
        "connect_private_key": key,
        "connect_certificate": certificate,
        # Addresses change. The access rules check the name in the certificate instead.
        "verify_name_on_connect": False,
        "close_link_on_expiration": True,
    }
