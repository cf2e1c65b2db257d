"""Settings of runs: the keys of their specs, and those in which runs differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_LONGEST_VALUE = 60  # characters of a value in a label or a table


def flat_settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec by dotted keys.

    Args:
        spec: The tables of a spec. The tables of a list are numbered. A list of plain values
            becomes its JSON text.

    Example:
        >>> flat_settings({"rounds": 9, "network": {"devices": 5, "faults": [{"kind": "churn"}]}})
        {'rounds': 9, 'network.devices': 5, 'network.faults.0.kind': 'churn'}
    """
    return dict(_flatten(spec, ""))


def _flatten(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            name = key
            if path:
                name = f"{path}.{key}"
            yield from _flatten(inner, name)
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for index, item in enumerate(value):
            yield from _flatten(item, f"{path}.{index}")
    elif isinstance(value, list):
        yield path, json.dumps(value, default=str)
    else:
        yield path, value


def differing_settings(specs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the settings in which runs differ, besides their seeds.

    Args:
        specs: The spec of each run.

    Returns:
        One value per run by dotted key; None where a spec does not have the key. The seed of a
        part is left out if it moves with the seed of the study.

    Example:
        >>> differing_settings([{"seed": 0, "batch": 8}, {"seed": 1, "batch": 16}])
        {'batch': [8, 16]}
    """
    tables = [flat_settings(spec) for spec in specs]
    names: dict[str, None] = {}
    for table in tables:
        names |= dict.fromkeys(table)
    found = {}
    for name in names:
        values = [table.get(name) for table in tables]
        if name == "seed" or _all_equal(values):
            continue
        if name.endswith(".seed") and _moves_with_seed(tables, values):
            continue
        found[name] = values
    return found


def _all_equal(values: Sequence[Any]) -> bool:
    return all(value == values[0] for value in values)


def _moves_with_seed(tables: Sequence[Mapping[str, Any]], seeds: Sequence[Any]) -> bool:
    """True if the seed of a part has the same distance to the study's seed in all runs."""
    distances = []
    for table, seed in zip(tables, seeds, strict=True):
        if isinstance(seed, int):
            distances.append(seed - table.get("seed", 0))
    return _all_equal(distances)


def value_text(value: Any) -> str:
    """Return a value of a spec as text for a label; a long one is cut.

    Args:
        value: A plain value; None if the key is not set.

    Example:
        >>> value_text(0.1), value_text(True), value_text(None)
        ('0.1', 'true', 'not set')
    """
    if value is None:
        return "not set"
    text = str(value)
    if isinstance(value, float):
        text = f"{value:g}"
    elif isinstance(value, bool):
        text = text.lower()
    if len(text) > _LONGEST_VALUE:
        text = text[: _LONGEST_VALUE - 1] + "…"
    return text
