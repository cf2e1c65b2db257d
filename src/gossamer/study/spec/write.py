"""Write a study as tables and as TOML text; compare tables; the digest of a study."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from gossamer import network
from gossamer.study.spec.sections import (
    OWN_CODE,
    PATH_KEYS,
    PLAIN_KEYS,
    Table,
    class_of,
    init_fields,
    item_path,
    kinds_of,
    nested_section,
)
from gossamer.study.spec.text import absolute_path
from gossamer.study.study import Study
from gossamer.tasks.own_devices import brings_devices
from gossamer.tasks.splits import own_split

_DIGEST_BYTES = 8
_MAX_CHARACTERS = 1000  # length to which the repr of a Python object is cut


def dumps(study: Study) -> str:
    """Write a study as TOML text.

    Args:
        study: The study.

    Returns:
        The text; `studies(parse(text))` gives the study back.

    Example:
        >>> dumps(Study(rounds=9)).splitlines()[:3]
        ['name = "study"', 'batch = 32', 'rounds = 9']
    """
    return tomli_w.dumps(to_table(study))


def to_table(study: Study, defaults: bool = True) -> Table:
    """Write a study as tables.

    Args:
        study: The study.
        defaults: If false, leave out what is at its default.

    Returns:
        The tables of a spec.

    Example:
        >>> to_table(Study(rounds=9), defaults=False)["rounds"]
        9
    """
    table: Table = {"name": study.name}
    for key in PLAIN_KEYS:
        table[key] = getattr(study, key)
    table["measure"] = _fields(study.measure, defaults=True)
    if not defaults:
        changed = _changed_fields(study)
        table = {key: table[key] for key in table if key in PLAIN_KEYS and key in changed}
        table["measure"] = _fields(study.measure, defaults)
    if study.timing is not None:
        table["timing"] = _fields(study.timing, defaults)
    if study.energy is not None:
        table["energy"] = _fields(study.energy, defaults)
    if study.stream is not None:
        table["stream"] = _fields(study.stream, defaults)
    written: Table = _plain(table)
    for section in ("data", "split", "model", "algorithm", "network"):
        if section == "split" and _has_own_split(study.data):
            continue
        written[section] = part_to_table(section, getattr(study, section), defaults)
    if study.events is not None:
        written["engine"] = part_to_table("engine", study.events, defaults)
    return written


def _has_own_split(data: Any) -> bool:
    return own_split(data) is not None or brings_devices(data)


def digest(study: Study) -> str:
    """Return a short hash of what a study says; it names the study's folder in a sweep.

    Defaults are left out, so that an option of a later version does not change the hash.

    Args:
        study: The study. Its name does not count.

    Returns:
        16 hexadecimal digits.
    """
    table = _with_floats(to_table(dataclasses.replace(study, name="study"), defaults=False))
    text = json.dumps(table, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def difference(old: Any, new: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """Find the first key in which two tables differ.

    Args:
        old: A table, or any value in one.
        new: The table to compare with.
        path: The name of both in the result.

    Returns:
        The key and its two values (None: the key is missing), or None if the tables are equal.

    Example:
        >>> difference({"network": {"density": 0.1}}, {"network": {"density": 0.2}})
        ('network.density', 0.1, 0.2)
    """
    items: list[tuple[str, Any, Any]] = []
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old | new:
            name = key
            if path:
                name = f"{path}.{key}"
            items.append((name, old.get(key), new.get(key)))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (a, b) in enumerate(zip(old, new, strict=True)):
            items.append((item_path(path, old, index), a, b))
    elif old != new:
        return path, old, new
    for name, a, b in items:
        found = difference(a, b, name)
        if found:
            return found
    return None


def part_to_table(section: str, part: Any, defaults: bool = True) -> Table:
    """Write a part of a study as a table with a kind.

    A part that was made in Python and has no kind is described; it cannot be built again.

    Args:
        section: The section whose kinds the part is one of.
        part: The part.
        defaults: If false, leave out what is at its default.

    Returns:
        The table.
    """
    faults: list[Table] = []
    while isinstance(part, network.Faulty):
        faults.insert(0, part_to_table("faults", part.fault, defaults))
        part = part.network
    table: Table = {}
    for kind in kinds_of(section):
        if type(part) is class_of(section, kind):
            table = {"kind": kind, **_fields(part, defaults)}
            break
    else:
        # Without addresses in memory, which differ in every process.
        description = re.sub(r" at 0x[0-9a-f]+", "", repr(part))
        # Half of a surrogate pair cannot be written as UTF-8.
        printable = description[:_MAX_CHARACTERS].encode("utf-8", "replace").decode()
        table = {"kind": OWN_CODE, "is": printable}
        if section == "metric":  # whoever reads the run needs its name and direction
            table |= dataclasses.asdict(part.column)
    if faults:
        table["faults"] = faults
    plain: Table = _plain(table)
    return plain


def _fields(part: Any, defaults: bool) -> Table:
    """Return the fields of a part by name: all, or those that are not at their default."""
    names = _changed_fields(part)
    if defaults:
        names = [field.name for field in init_fields(type(part))]
    table: Table = {}
    for name in names:
        value = getattr(part, name)
        nested = nested_section(type(part), name)
        if nested and isinstance(value, tuple):
            value = [part_to_table(nested, item, defaults) for item in value]
        elif nested and (dataclasses.is_dataclass(value) or callable(value)):
            value = part_to_table(nested, value, defaults)
        elif name in PATH_KEYS and value is not None:
            value = absolute_path(Path.cwd(), value)
        table[name] = value
    return table


def _changed_fields(part: Any) -> list[str]:
    """Return the fields of a dataclass that are not at their default."""
    names = []
    for field in init_fields(type(part)):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if getattr(part, field.name) != default:
            names.append(field.name)
    return names


def _plain(value: Any) -> Any:
    """Return a value as TOML's types have it; None is left out of tables."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, str | int | float | bool):
        return value
    return str(value)


def _with_floats(value: Any) -> Any:
    """Return tables with every whole number as a float: p = 1 and p = 1.0 are equal."""
    if isinstance(value, dict):
        return {key: _with_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_floats(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value
