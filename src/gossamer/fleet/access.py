"""What a device's links need to know, and what zenoh is told of it: with rules by which it throws away what nobody may say."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer._core import checks
from gossamer.errors import DataError, InputError
from gossamer.fleet import keys
from gossamer.fleet.line import ANSWERS, BATCH, BATCHES, CHUNK

_RUN = re.compile(r"[a-z0-9-]{1,64}")
STATUS_BYTES = 4096  # that a device may say of itself
DIGITS = 8  # of a session's id in zenoh, hexadecimal: the last are the device's number


@dataclass(frozen=True)
class Settings:
    """All that a device's links need. `names` has the name in each device's certificate, by its number.

    `certificates` is the device's folder as `keys.make_certificate` makes it; `insecure` does without: plain TCP, for a bench.
    Endpoints are `host:port`. Of two devices it is enough that one dials the other; that both do does no harm.

        Settings(run="a1", names=("n0", "n1"), certificates=Path("n0"), connect=("10.0.0.2:7447",))
    """

    run: str
    names: tuple[str, ...]
    certificates: Path | None = None
    insecure: bool = False
    observer: str = "observer"  # the name in the certificate of whoever watches
    listen: tuple[str, ...] = ("0.0.0.0:7447",)
    connect: tuple[str, ...] = ()
    multicast: bool = True  # find neighbours on the local network
    interface: str = (
        "auto"  # for multicast; "auto": all that are up at the start, and no others later
    )
    lease: float = 1.0  # seconds of silence after which a link is dead
    largest: int = 64 << 20  # bytes of a message
    outgoing: int = 4  # messages that wait for a neighbour; the oldest goes when there are more
    incoming: int = 8  # messages of a neighbour that wait to be received, of twice `largest` bytes at most; the same

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
                if not re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}", endpoint):
                    raise InputError(field, endpoint, "host:port, such as 10.0.0.2:7447")
        checks.number("lease", self.lease, least=0.2, most=60, noun="seconds")
        checks.whole("largest", self.largest, 1, (1 << 32) - 1, "a whole number of bytes")
        for field in ("outgoing", "incoming"):
            checks.whole(field, getattr(self, field), 1, 1000)


def configuration(device: int | None, settings: Settings) -> dict[str, Any]:
    """zenoh's own configuration for a device; for None, that of the observer."""
    protocol = "tcp" if settings.insecure else "tls"
    lease = round(1000 * settings.lease)  # zenoh counts in milliseconds
    link: dict[str, Any] = {
        "protocols": [protocol],
        "tx": {
            "lease": lease,
            "keep_alive": 4,
            "batch_size": BATCH,
            # Not that anything waits or is dropped while all keep to what is said in line.py. In microseconds.
            "queue": {
                "size": {"data": BATCHES, "interactive_high": ANSWERS},
                "congestion_control": {
                    "block": {"wait_before_close": 100_000},
                    "drop": {"wait_before_drop": 0},
                },
            },
        },
        "rx": {"max_message_size": (CHUNK if device is not None else STATUS_BYTES) + BATCH},
    }
    whole: dict[str, Any] = {
        "mode": "peer",
        "id": f"{secrets.randbits(60) | 1 << 60:x}{16**DIGITS - 1 if device is None else device:0{DIGITS}x}",
        "listen": {
            "endpoints": []
            if device is None
            else [f"{protocol}/{endpoint}" for endpoint in settings.listen]
        },
        "connect": {
            "endpoints": [f"{protocol}/{endpoint}" for endpoint in settings.connect],
            "timeout_ms": -1,  # for ever, in the background: 0 would be one attempt
            "exit_on_failure": False,
            "retry": {
                "period_init_ms": lease // 4,
                "period_max_ms": lease,
                "period_increase_factor": 2,
            },
        },
        "open": {"return_conditions": {"connect_scouted": False, "declares": False}},
        "scouting": {
            "multicast": {
                "enabled": settings.multicast,
                "interface": settings.interface,
                "autoconnect": ["peer"],
                # Of two devices one dials, not both; the observer, which nobody can dial, does.
                "autoconnect_strategy": {
                    "peer": {"to_peer": "always" if device is None else "greater-zid"}
                },
            },
            "gossip": {"enabled": False, "autoconnect": []},  # a neighbour's neighbour is none
        },
        "transport": {
            "link": link,
            "unicast": {
                "open_timeout": 2 * lease,
                "accept_timeout": 2 * lease,
                # Each device twice, for it may come back before its end was noticed; and observers.
                "max_sessions": 2 * len(settings.names) + 8,
            },
            "shared_memory": {"enabled": False},
        },
    }
    if settings.certificates is not None and not settings.insecure:
        name = settings.observer if device is None else settings.names[device]
        if wrong := keys.check_folder(settings.certificates, name):
            raise DataError(wrong)
        key, certificate = (
            str(settings.certificates / file) for file in (keys.KEY, keys.CERTIFICATE)
        )
        link["tls"] = {
            "root_ca_certificate": str(settings.certificates / keys.AUTHORITY_CERTIFICATE),
            "enable_mtls": True,
            "listen_private_key": key,
            "listen_certificate": certificate,
            "connect_private_key": key,
            "connect_certificate": certificate,
            "verify_name_on_connect": False,  # addresses change; who it is, the access rules ask of the certificate
            "close_link_on_expiration": True,
        }
        whole["access_control"] = access(device, settings)
    return whole


class _Rules:
    """Access rules as zenoh takes them. What none of them allows is denied."""

    def __init__(self, run: str) -> None:
        self._root = f"gossamer/{run}"
        self._rules: dict[str, dict[str, Any]] = {}
        self._policies: list[dict[str, Any]] = []

    def allow(self, id: str, flow: str, key: str, *messages: str) -> str:
        """A rule: what may come in (ingress) or go out (egress). `give` says from whom, or to whom."""
        keys = [f"{self._root}/{key}"]
        self._rules[id] = {
            "id": id,
            "permission": "allow",
            "flows": [flow],
            "messages": messages,
            "key_exprs": keys,
        }
        return id

    def give(self, name: str, *rules: str) -> None:
        """The rules for whoever has this name in its certificate."""
        self._policies.append({"subjects": [name], "rules": rules})

    def whole(self) -> dict[str, Any]:
        return {
            "enabled": True,
            "default_permission": "deny",
            "rules": list(self._rules.values()),
            "subjects": [
                {"id": name, "cert_common_names": [name]}
                for policy in self._policies
                for name in policy["subjects"]
            ],
            "policies": self._policies,
        }


def access(device: int | None, settings: Settings) -> dict[str, Any]:
    """zenoh's access rules for a device: what each other may say to it, and hear from it; for None, those of the observer."""
    rules = _Rules(settings.run)
    allow = rules.allow
    if device is None:
        listens = allow("listens", "egress", "status/*", "declare_subscriber")
        for other, name in enumerate(settings.names):
            rules.give(name, listens, allow(f"{name} speaks", "ingress", f"status/{other}", "put"))
        return rules.whole()
    asking = ("declare_liveliness_subscriber", "liveliness_query")
    to_all = [
        allow("is alive", "egress", f"alive/{device}", "liveliness_token"),
        allow("asks", "egress", "alive/*", *asking),
        allow("is asked", "ingress", "alive/*", *asking),
    ]
    for other, name in enumerate(settings.names):
        if other != device:
            rules.give(
                name,
                *to_all,
                allow(f"{name} is alive", "ingress", f"alive/{other}", "liveliness_token"),
                allow(
                    f"{name} listens",
                    "ingress",
                    f"from/{device}/to/{other}/*",
                    "declare_subscriber",
                ),
                allow(f"{name} hears", "egress", f"from/{device}/to/{other}/*", "put"),
                allow(
                    f"listens to {name}",
                    "egress",
                    f"from/{other}/to/{device}/*",
                    "declare_subscriber",
                ),
                allow(f"{name} speaks", "ingress", f"from/{other}/to/{device}/*", "put"),
            )
    rules.give(
        settings.observer,
        allow("the observer listens", "ingress", "status/*", "declare_subscriber"),
        allow("the observer hears", "egress", f"status/{device}", "put"),
    )
    return rules.whole()
