"""The settings of links, zenoh's configuration and its access rules."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gossamer.errors import DataError, InputError, MissingExtra
from gossamer.fleet import keys
from gossamer.fleet.transport.configuration import LinkSettings, access_rules, configuration
from gossamer.fleet.transport.zenoh import Zenoh

pytest.importorskip("zenoh", reason="needs the extra gossamer[peer]")

NAMES = ("n0", "n1", "n2", "n3")
VALID: dict[str, Any] = {"run": "r", "names": ("a", "b"), "insecure": True}
# Values that zenoh replaces by several others.
ADVANCED = {("connect", "retry"), ("scouting", "multicast", "autoconnect_strategy")}


@pytest.mark.parametrize(
    "change",
    [
        {"run": "a/b"},
        {"run": "*"},
        {"names": ("a",)},
        {"names": ("a", "a")},
        {"observer": "b"},
        {"insecure": False},
        {"listen": ()},
        {"listen": ("7447",)},
        {"connect": ("tcp/10.0.0.1:7447",)},
        {"lease": 0.01},
        {"largest": 0},
        {"outgoing": 0},
        {"incoming": 10**6},
    ],
    ids=str,
)
def test_invalid_settings_are_refused_by_name(change: dict[str, Any]) -> None:
    with pytest.raises(InputError) as error:
        LinkSettings(**{**VALID, **change})
    field = next(iter(change))
    assert error.value.field == ("certificates" if field == "insecure" else field)


def test_an_invalid_device_and_a_missing_certificate_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="device"):
        Zenoh(2, LinkSettings(**VALID))
    with pytest.raises(DataError, match=r"ca\.pem is missing"):
        Zenoh(0, LinkSettings(**{**VALID, "insecure": False, "certificates": tmp_path}))


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zenoh", None)
    with pytest.raises(MissingExtra, match=r"gossamer\[peer\]"):
        Zenoh(0, LinkSettings(**VALID))


def paths(tree: Any, outer: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, inner in tree.items():
        path = (*outer, name)
        if isinstance(inner, dict) and path not in ADVANCED:
            yield from paths(inner, path)
        else:
            yield path


def value(tree: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        tree = tree[name]
    return tree


def test_zenoh_knows_every_setting(tmp_path: Path) -> None:
    """zenoh ignores unknown settings silently, so each must be in the configuration it makes."""
    import zenoh

    keys.make_authority(tmp_path / "authority", "fleet", days=10)
    keys.make_certificate(tmp_path / "n0", tmp_path / "authority", "n0", days=5)
    ours = configuration(0, LinkSettings("r", NAMES, tmp_path / "n0", connect=("10.0.0.2:7447",)))
    known = json.loads(str(zenoh.Config()))
    made = json.loads(str(zenoh.Config.from_json5(json.dumps(ours))))
    for path in paths(ours):
        value(known, path[:2] if path[:2] == ("connect", "retry") else path)
        assert value(made, path) is not None


def keys_of(rules: list[dict[str, Any]], flow: str, message: str) -> list[list[str]]:
    """Return the keys of the rules for a message in one direction."""
    found = []
    for rule in rules:
        if rule["flows"] == [flow] and message in rule["messages"]:
            found.append(rule["key_exprs"])
    return found


def test_access_rules_are_for_each_name_alone() -> None:
    rules = access_rules(1, LinkSettings("r", NAMES, Path("n1")))
    assert rules["enabled"]
    assert rules["default_permission"] == "deny"
    by_id = {rule["id"]: rule for rule in rules["rules"]}
    subjects = [policy["subjects"] for policy in rules["policies"]]
    assert subjects == [["n0"], ["n2"], ["n3"], ["observer"]]
    for policy, other in zip(rules["policies"][:-1], (0, 2, 3), strict=True):
        allowed = [by_id[id] for id in policy["rules"]]
        sent_to_it = [[f"gossamer/r/from/1/to/{other}/*"]]
        assert keys_of(allowed, "ingress", "put") == [[f"gossamer/r/from/{other}/to/1/*"]]
        assert keys_of(allowed, "egress", "put") == sent_to_it
        # Any other declaration would cost this device time.
        assert keys_of(allowed, "ingress", "declare_subscriber") == sent_to_it
    observer = [by_id[id] for id in rules["policies"][-1]["rules"]]
    assert [(rule["flows"], list(rule["messages"]), rule["key_exprs"]) for rule in observer] == [
        (["ingress"], ["declare_subscriber"], ["gossamer/r/status/*"]),
        (["egress"], ["put"], ["gossamer/r/status/1"]),
    ]
    for rule in rules["rules"]:
        assert not {"delete", "query", "reply", "declare_queryable"} & set(rule["messages"])
