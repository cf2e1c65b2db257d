"""Data that say which device holds which samples, such as one file per device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gossamer.errors import InputError
from gossamer.tasks.data import Data
from gossamer.tasks.label_checks import listed
from gossamer.tasks.splits import Split


def brings_devices(source: Any) -> bool:
    """True if a source of data, or loaded data, says which device holds which samples.

    Args:
        source: A source, or data. A source says so by its attribute `brings_devices`; data have an
            owner.

    Example:
        >>> from gossamer.tasks import Digits
        >>> brings_devices(Digits())
        False
    """
    if isinstance(source, Data):
        return source.owner is not None
    return bool(getattr(source, "brings_devices", False))


def split_by_owner(data: Data, names: Sequence[str] | None, devices: int) -> Split:
    """Return the split that data bring along.

    Args:
        data: Data with an owner for each sample.
        names: Names of the network's devices, if they have any. If they are the same as those of
            the data, devices are matched by name; otherwise in the order of the data's names.
        devices: Number of devices of the network.

    Raises:
        InputError: If the data are of another number of devices.
    """
    assert data.owner is not None
    count = len(data.device_names)
    if devices != count:
        accepted = (
            f"{count}, since {data.name} has samples of {count} devices "
            f"({listed(data.device_names)}), or data.pooled = true to divide its samples anew"
        )
        raise InputError("devices", devices, accepted)
    owner = data.owner.numpy()
    order = np.argsort(owner, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=count))])
    split = Split(order, offsets)
    if not by_name(data, names):
        return split
    assert names is not None
    numbers = {name: number for number, name in enumerate(data.device_names)}
    parts = [split.of(numbers[name]) for name in names]
    return Split(np.concatenate(parts), np.cumsum([0, *map(len, parts)]))


def by_name(data: Data, names: Sequence[str] | None) -> bool:
    """True if the network's devices have the same names as those of the data.

    Args:
        data: Data with an owner for each sample.
        names: Names of the network's devices.
    """
    return names is not None and sorted(names) == sorted(data.device_names)


def names_in_order(data: Data, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the name that each device of the network has in the data; none if it has none.

    Args:
        data: The data.
        names: Names of the network's devices, if they have any.
    """
    if data.owner is not None and names is not None and by_name(data, names):
        return tuple(names)
    return data.device_names


def describe_matching(data: Data, names: Sequence[str] | None) -> str:
    """Return how the devices of the data and of the network are matched, in one sentence.

    Args:
        data: The data.
        names: Names of the network's devices, if they have any.

    Returns:
        The sentence; nothing if the data do not say which device holds a sample.
    """
    if data.owner is None:
        return ""
    found = f"{data.name} has samples of {len(data.device_names)} devices"
    if by_name(data, names):
        return f"{found}; they are matched to the devices of the network by name"
    order = f"{found}, numbered in the order of their names: {listed(data.device_names)}"
    if names is None:
        return order
    return f"{order}; the network has other names ({listed(names)}), so they are not matched by it"
