"""Access rules for zenoh: who may send and receive what. Everything else is denied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ASK = ("declare_liveliness_subscriber", "liveliness_query")


class _Rules:
    """Access rules in zenoh's own form."""

    def __init__(self, run: str) -> None:
        self._root = f"gossamer/{run}"
        self._rules: dict[str, dict[str, Any]] = {}
        self._policies: list[dict[str, Any]] = []

    def allow(self, id: str, flow: str, key: str, *messages: str) -> str:
        """Add a rule for what may come in ("ingress") or go out ("egress"); return its id."""
        self._rules[id] = {
            "id": id,
            "permission": "allow",
            "flows": [flow],
            "messages": messages,
            "key_exprs": [f"{self._root}/{key}"],
        }
        return id

    def grant(self, name: str, *rules: str) -> None:
        """Apply rules to the peer with this name in its certificate."""
        self._policies.append({"subjects": [name], "rules": rules})

    def as_config(self) -> dict[str, Any]:
        subjects = []
        for policy in self._policies:
            for name in policy["subjects"]:
                subjects.append({"id": name, "cert_common_names": [name]})
        return {
            "enabled": True,
            "default_permission": "deny",
            "rules": list(self._rules.values()),
            "subjects": subjects,
            "policies": self._policies,
        }


def device_rules(run: str, others: Mapping[int, str], device: int, observer: str) -> dict[str, Any]:
    """Return zenoh's access rules of a device: what every other peer may send to it and receive.

    Args:
        run: Name of the run.
        others: Name in the certificate of each other device, by number.
        device: Number of the device.
        observer: Name in the certificate of observers.
    """
    rules = _Rules(run)
    allow = rules.allow
    for_all = [
        allow("is alive", "egress", f"alive/{device}", "liveliness_token"),
        allow("asks", "egress", "alive/*", *_ASK),
        allow("is asked", "ingress", "alive/*", *_ASK),
    ]
    for other, name in others.items():
        out = f"from/{device}/to/{other}/*"
        back = f"from/{other}/to/{device}/*"
        rules.grant(
            name,
            *for_all,
            allow(f"{name} is alive", "ingress", f"alive/{other}", "liveliness_token"),
            allow(f"{name} subscribes", "ingress", out, "declare_subscriber"),
            allow(f"{name} receives", "egress", out, "put"),
            allow(f"subscribes to {name}", "egress", back, "declare_subscriber"),
            allow(f"{name} sends", "ingress", back, "put"),
        )
    rules.grant(
        observer,
        allow("the observer subscribes", "ingress", "status/*", "declare_subscriber"),
        allow("the observer receives", "egress", f"status/{device}", "put"),
    )
    return rules.as_config()


def observer_rules(run: str, others: Mapping[int, str]) -> dict[str, Any]:
    """Return zenoh's access rules of an observer: it receives the status of each device.

    Args:
        run: Name of the run.
        others: Name in the certificate of each device, by number.
    """
    rules = _Rules(run)
    subscribes = rules.allow("subscribes", "egress", "status/*", "declare_subscriber")
    for other, name in others.items():
        sends = rules.allow(f"{name} sends", "ingress", f"status/{other}", "put")
        rules.grant(name, subscribes, sends)
    return rules.as_config()
