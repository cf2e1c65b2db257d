"""Properties of devices, such as a class or a ward, that a log repeats in every contact."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gossamer.network.base import IntArray
from gossamer.network.traces.table import Table


def one_value_each(table: Table, devices: tuple[int, int], values: tuple[int, int]) -> bool:
    """True if two columns have one value per device, the same in all rows.

    Args:
        table: The log.
        devices: The columns of the first and the second device.
        values: The columns of their values.
    """
    words, device = _together(table, devices)
    return _value_of_each(table, device, len(words), values) is not None


def read_groups(
    table: Table,
    devices: tuple[IntArray, IntArray],
    count: int,
    columns: dict[str, tuple[int, int]],
) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Return the properties of the devices.

    Args:
        table: The log.
        devices: Numbers of the first and the second device of every row.
        count: Number of devices.
        columns: Two columns of each property.

    Returns:
        The values of all devices by property, and the properties that differ between the rows of
        a device, which are left out.
    """
    device = np.concatenate(devices)
    groups: dict[str, tuple[str, ...]] = {}
    left_out = []
    for name, pair in columns.items():
        values = _value_of_each(table, device, count, pair)
        if values is None:
            left_out.append(name)
        else:
            groups[name] = values
    return groups, left_out


def _value_of_each(
    table: Table, device: IntArray, count: int, columns: tuple[int, int]
) -> tuple[str, ...] | None:
    """Return the value of every device; None if a device has several."""
    words, index = _together(table, columns)
    value = np.zeros(count, dtype=np.int64)
    value[device] = index
    if (value[device] != index).any():
        return None
    return tuple(words[k] for k in value.tolist())


def _together(table: Table, columns: tuple[int, int]) -> tuple[list[str], IntArray]:
    """Return the distinct values of two columns, and the index of each: first those of one."""
    first, second = columns
    cells = pa.chunked_array([table.columns[first].cells, table.columns[second].cells])
    encoded = pc.dictionary_encode(cells).combine_chunks()
    index = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return encoded.dictionary.to_pylist(), index
