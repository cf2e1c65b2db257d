"""`--set KEY=VALUE`: change the values of a spec."""

from __future__ import annotations

import copy
import re
import tomllib
from pathlib import Path
from typing import Any

from gossamer.study.spec.sections import DEFAULTS, SpecError, Table, keys_of
from gossamer.study.spec.text import resolve_paths

# A step of a dotted key: a name, and an index where it has one, as in `algorithm[0]`.
_STEP = re.compile(r"(.*?)(?:\[(\d{1,9})\])?", re.DOTALL)


def with_settings(table: Table, settings: list[str]) -> Table:
    """Return the tables of a spec with settings applied, one after the other.

    Args:
        table: The tables of a spec; they are not changed.
        settings: Texts "key=value". A key is dotted: `algorithm.p=5` sets p in every
            [[algorithm]], `algorithm[0].p=5` in the first. A value is TOML, or a word if it is not
            TOML. A change of a kind keeps the keys that the new kind has too:
            `network.kind=ring` keeps the number of devices.

    Returns:
        New tables.

    Raises:
        SpecError: If a setting is not "key=value", or leads through a plain value.

    Example:
        >>> network = {"kind": "random", "devices": 8, "density": 0.2}
        >>> with_settings({"network": network}, ["network.kind=ring", "rounds=5"])
        {'network': {'kind': 'ring', 'devices': 8}, 'rounds': 5}
    """
    table = copy.deepcopy(table)
    for setting in settings:
        key, value = _parse_setting(setting)
        *path, last = key.split(".")
        for target in _targets(table, path, key):
            if last == "kind" and target.get("kind") not in (None, value):
                section = ""
                if path:
                    section, _ = _split_step(path[-1])
                _drop_keys_of_old_kind(target, keys_of(section, value))
            target |= resolve_paths(Path.cwd(), {last: value})
    return table


def _parse_setting(setting: str) -> tuple[str, Any]:
    """Return the key of a setting and its value as TOML reads it."""
    key, equals, text = setting.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")):
        raise SpecError(
            f"--set {setting!r} is not accepted: give key=value, for example algorithm.p=15"
        )
    try:
        return key, tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return key, text.strip()
    except (ValueError, RecursionError) as error:  # a number of too many digits, for one
        raise SpecError(f"--set {key}: its value is not TOML: {error}") from None


def _drop_keys_of_old_kind(table: Table, keys: list[str]) -> None:
    for key in list(table):
        if key not in keys:
            del table[key]


def _targets(table: Table, path: list[str], key: str) -> list[Table]:
    """Return the tables that a dotted path leads to: several where a section is a list."""
    targets = [table]
    for depth, step in enumerate(path):
        name, index = _split_step(step)
        default = {}
        if depth == 0:
            default = DEFAULTS.get(name, {})
        following: list[Any] = []
        for target in targets:
            inner = target.setdefault(name, copy.deepcopy(default))
            if isinstance(inner, str):  # `split = "iid"` is short for a table with that kind
                inner = target[name] = {"kind": inner}
            items = inner
            if not isinstance(inner, list):
                items = [inner]
            if index is None:
                following += items
            elif index < len(items):
                following.append(items[index])
            else:
                raise SpecError(
                    f"--set {key}: there is no {step}; {name} has {len(items)}, counted from 0"
                )
        if not all(isinstance(target, dict) for target in following):
            raise SpecError(f"--set {key}: {step} is a plain value and has no keys")
        targets = following
    return targets


def _split_step(step: str) -> tuple[str, int | None]:
    """Split `algorithm[0]` into its name and index; a step without an index has None."""
    name, index = _STEP.fullmatch(step).groups()  # type: ignore[union-attr]
    if index is None:
        return name, None
    return name, int(index)
