"""Measurements of several runs as one table in long form: one value per row and column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from gossamer.results.run import Run

_DEVICE_PREFIX = "device_"
_WHOLE = ("round", "device", "messages", "bytes")
_ARROW_TYPES = {bool: pa.bool_, int: pa.int64, float: pa.float64, str: pa.string}
# Columns of a run that are no values of single devices.
_OF_THE_RUN = ("messages", "bytes", "simulated_seconds")


def long_form(
    runs: Sequence[Run], names: Sequence[str], settings: Mapping[str, Sequence[Any]], devices: bool
) -> pa.Table:
    """Return the measurements of runs as one table.

    Args:
        runs: The runs; those without measurements have no rows.
        names: One name per run.
        settings: Values by the name of the setting, one per run.
        devices: One row per device, with its own values.

    Returns:
        The columns run, method, seed, the settings, round, device if there is one row per device,
        and the measured values. A value that a run did not measure is missing.
    """
    pieces = [_measurements(run, devices) for run in runs]
    counts = [len(piece.get("round", ())) for piece in pieces]
    measured = _measured_names(pieces, devices)
    columns: dict[str, pa.Array] = {
        "run": _repeated(names, counts),
        "method": _repeated([run.label for run in runs], counts),
        "seed": _repeated([run.seed for run in runs], counts, int),
    }
    for key, values in settings.items():
        name = key
        if key in ("run", "method", "device", *measured):
            name = f"study.{key}"
        kind = _kind_of(values)
        columns[name] = _repeated(_converted(values, kind), counts, kind)
    for name in measured:
        kind = float
        if name in _WHOLE:
            kind = int
        parts = []
        for piece, count in zip(pieces, counts, strict=True):
            parts.append(_values(piece.get(name), count, _ARROW_TYPES[kind]()))
        columns[name] = pa.chunked_array(parts, _ARROW_TYPES[kind]())
    return pa.table(columns)


def _measurements(run: Run, devices: bool) -> dict[str, Any]:
    """Return the measurements of a run by column, each with one value per row."""
    if not run.metrics:
        return {}
    means = {}
    for name, values in run.metrics.items():
        if not name.startswith(_DEVICE_PREFIX):
            means[name] = np.asarray(values)
    if not devices:
        return means
    return _per_device(run, means)


def _per_device(run: Run, means: dict[str, Any]) -> dict[str, Any]:
    """Return a row per measurement and device; the means if there are no values per device."""
    own = {}
    for name, values in run.metrics.items():
        if name.startswith(_DEVICE_PREFIX):
            own[name.removeprefix(_DEVICE_PREFIX)] = np.asarray(values)
    count = 1
    if own:
        count = next(iter(own.values())).shape[1]
    table = {"round": np.repeat(means["round"], count)}
    if own:
        table["device"] = np.tile(np.arange(count), len(means["round"]))
    else:
        own = {column.name: means[column.name] for column in run.columns}
    for name, values in own.items():
        table[name] = values.reshape(-1)
    for name in _OF_THE_RUN:
        if name in means:
            table[name] = np.repeat(means[name], count)
    return table


def _measured_names(pieces: Sequence[Mapping[str, Any]], devices: bool) -> list[str]:
    """Return the measured columns of all runs, in the order in which they first occur."""
    names = {"round": None}
    if devices:
        names["device"] = None
    for piece in pieces:
        names |= dict.fromkeys(piece)
    for name in ("run", "method", "seed"):  # metrics could have these names in version 0.1
        names.pop(name, None)
    return list(names)


def _values(values: Any, count: int, kind: pa.DataType) -> pa.Array:
    """Return the values of one run; NaN and values that it has not measured are missing."""
    if values is None:
        return pa.nulls(count, kind)
    if pa.types.is_floating(kind):  # Arrow refuses integers beyond 2^53 here
        values = np.asarray(values, dtype=np.float64)
    return pa.array(values, kind, from_pandas=True)


def _repeated(values: Sequence[Any], counts: Sequence[int], kind: type = str) -> pa.Array:
    """Return one value per run, each as often as the run has rows."""
    indices = np.repeat(np.arange(len(counts)), counts)
    return pa.array(values, _ARROW_TYPES[kind]()).take(pa.array(indices, pa.int64()))


def _kind_of(values: Sequence[Any]) -> type:
    """Return the type of a setting's column: text, unless all values fit another."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return float
    if len(kinds) == 1:
        kind = kinds.pop()
        if kind in _ARROW_TYPES:
            return kind
    return str


def _converted(values: Sequence[Any], kind: type) -> list[Any]:
    """Return values as one type; None stays."""
    found = []
    for value in values:
        if value is not None:
            value = kind(value)
        found.append(value)
    return found
