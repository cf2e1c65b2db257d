"""Which samples each device holds, and which of them make a batch.

A rule is a frozen dataclass; `make` applies it to the labels and is pure in (labels, devices, seed).

    >>> split = OneLabel().make(np.array([0, 1, 0, 1, 0, 1]), devices=2, seed=0)
    >>> split.of(0).tolist(), split.of(1).tolist()
    ([0, 2, 4], [1, 3, 5])
"""

from __future__ import annotations

import heapq
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gossamer import draws
from gossamer._core.files import os_errors
from gossamer._core.registry import register
from gossamer.errors import DataError, InputError

IntArray = NDArray[np.int64]

MAX_HELD = 1 << 30
"""The most sample numbers that a split may hold (8 GiB)."""


@dataclass(frozen=True, eq=False)
class Split:
    """Device i holds the samples index[offsets[i] : offsets[i+1]]; every device holds at least one."""

    index: IntArray
    offsets: IntArray

    @property
    def devices(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def sizes(self) -> IntArray:
        """How many samples each device holds."""
        return np.diff(self.offsets)

    def of(self, device: int) -> IntArray:
        """The samples of one device."""
        return self.index[self.offsets[device] : self.offsets[device + 1]]


def batch(
    split: Split, seed: int, t: int | IntArray, step: int, size: int, devices: IntArray
) -> IntArray:
    """The sample numbers [len(devices), size] of the batches of step `step` of round t.

    Drawn from each device's own samples, uniformly and with replacement, by name: a device's batch is the same whoever
    else is asked for. Several rounds at once: t as [rounds, 1, 1].

        batch(split, seed=0, t=5, step=0, size=128, devices=np.arange(split.devices))
    """
    column = devices[:, None]
    place = draws.below(split.sizes[column], seed, "batch", t, step, column, np.arange(size))
    place += split.offsets[column]
    return split.index[place]


def from_lists(lists: Iterable[ArrayLike], samples: int | None = None) -> Split:
    """A split from one list of sample numbers a device; a sample may be held by several devices, or by none.

    >>> from_lists([[0, 1], [1, 2, 3]]).sizes.tolist()
    [2, 3]
    """
    try:
        parts = [np.asarray(part) for part in lists]
    except ValueError as error:  # a list within the list
        raise InputError(
            "lists", "nested lists", "one flat list of sample numbers for each device"
        ) from error
    if not parts:
        raise InputError("lists", [], "one list of sample numbers for each device")
    for device, part in enumerate(parts):
        if part.ndim != 1 or len(part) == 0 or part.dtype.kind not in "iu":
            accepted = f"a list of whole numbers, at least one, for device {device}"
            raise InputError("lists", part.tolist(), accepted)
    return _checked(np.concatenate(parts), np.cumsum([0, *map(len, parts)]), samples)


def _checked(index: NDArray[Any], offsets: NDArray[Any], samples: int | None) -> Split:
    outside = (index < 0) | (index >= (samples if samples is not None else 1 << 32))
    if outside.any():
        accepted = (
            f"sample numbers from 0 to {samples - 1}"
            if samples is not None
            else "sample numbers from 0 upwards"
        )
        raise InputError("lists", int(index[outside][0]), accepted)
    return Split(index.astype(np.int64), offsets.astype(np.int64))


class SplitRule(ABC):
    """A way to deal the samples out to the devices."""

    @abstractmethod
    def make(self, y: NDArray[Any], devices: int, seed: int) -> Split:
        """The split of samples with targets y over the devices; integer y are labels, floating y regression targets."""


@register("split", "iid")
@dataclass(frozen=True)
class Iid(SplitRule):
    """Every sample to one device at random; sizes differ by at most one."""

    def make(self, y: NDArray[Any], devices: int, seed: int) -> Split:
        _check_devices(devices, len(y))
        order = draws.permutation(len(y), seed, "split/iid")
        return Split(order, np.arange(devices + 1) * len(y) // devices)


@register("split", "one-label")
@dataclass(frozen=True)
class OneLabel(SplitRule):
    """One label a device: device i holds label i mod C, and devices with the same label share its samples evenly.

    C counts the labels that occur. Once a label has as many devices as samples, the later devices pass it over, so that
    there may be as many devices as samples.
    """

    def make(self, y: NDArray[Any], devices: int, seed: int) -> Split:
        labels, counts = _labels(self, y)
        _check_devices(devices, len(y))
        if devices < len(counts):
            accepted = f'at least {len(counts)}, the number of labels, or k labels a device: split = "labels"'
            raise InputError("devices", devices, accepted)
        return _share(labels, _turns(counts, devices), np.arange(devices), devices, seed)


@register("split", "labels")
@dataclass(frozen=True)
class Labels(SplitRule):
    """k different labels a device, chosen at random such that every label is held by (nearly) as many devices.

    The devices that hold a label share its samples evenly. `Labels(1)` is `OneLabel` in a random order.
    """

    k: int = 2

    def __post_init__(self) -> None:
        if self.k < 1:
            raise InputError("k", self.k, "a whole number of labels, at least 1")

    def make(self, y: NDArray[Any], devices: int, seed: int) -> Split:
        labels, counts = _labels(self, y)
        _check_devices(devices, len(y))
        if self.k > len(counts):
            raise InputError("k", self.k, f"at most {len(counts)}, the number of labels")
        if devices * self.k < len(counts):
            accepted = f"at least {math.ceil(len(counts) / devices)}, so that the devices hold all {len(counts)} labels"
            raise InputError("k", self.k, accepted)
        most = np.minimum(
            counts, devices
        )  # a device holds a label once, and at least one sample of it
        if devices * self.k > most.sum():
            raise InputError(
                "devices", devices, f"fewer: the samples do not suffice for {self.k} labels on each"
            )
        left = np.bincount(_turns(most, devices * self.k), minlength=len(counts))
        chosen = np.empty((devices, self.k), dtype=np.int64)
        for device in range(devices):
            # The labels that most devices have still to take; always possible, as for any regular bipartite graph.
            tie = draws.bits(seed, "split/labels", device, np.arange(len(counts)))
            chosen[device] = np.lexsort((tie, -left))[: self.k]
            left[chosen[device]] -= 1
        return _share(labels, chosen.ravel(), np.repeat(np.arange(devices), self.k), devices, seed)


@register("split", "dirichlet")
@dataclass(frozen=True)
class Dirichlet(SplitRule):
    """Each label's samples in proportions drawn from Dirichlet(α, …, α): small α few labels a device, large α near IID.

    A device that would get no sample takes one from the device that holds most.
    """

    alpha: float = 0.5

    def __post_init__(self) -> None:
        if not 1e-9 <= self.alpha <= 1e9:
            raise InputError("alpha", self.alpha, "a number above 0 (from 1e-9 to 1e9)")

    def make(self, y: NDArray[Any], devices: int, seed: int) -> Split:
        labels, counts = _labels(self, y)
        _check_devices(devices, len(y))
        rank = _ranks(labels, counts, seed)
        owner = np.empty(len(y), dtype=np.int64)
        for label, count in enumerate(counts):
            # Where the proportions cut the label's shuffled samples. Each label rounds with its own phase: with few
            # samples a device, the same devices would else gain from every label.
            phase = draws.uniform(seed, "split/dirichlet/phase", label)
            cuts = np.floor(np.cumsum(self._proportions(label, devices, seed)) * count + phase)
            cuts[-1] = count
            mine = labels == label
            owner[mine] = np.searchsorted(cuts, rank[mine], side="right")
        return _by_owner(_nobody_empty(owner, devices), devices)

    def _proportions(self, label: int, devices: int, seed: int) -> NDArray[np.float64]:
        """Gamma(α) draws made to sum to one.

        Gamma(α) is Gamma(α+1)·U^(1/α), taken in the logarithm: for small α the draws themselves underflow.
        """
        from scipy.special import gammaincinv

        who = np.arange(devices)
        u, v = (
            draws.uniform(seed, f"split/dirichlet/{part}", label, who) + 2.0**-54
            for part in ("gamma", "power")
        )
        log = np.log(gammaincinv(self.alpha + 1.0, u)) + np.log(v) / self.alpha
        share = np.exp(log - log.max())
        return np.asarray(share / share.sum())


@register("split", "uneven")
@dataclass(frozen=True)
class Uneven(SplitRule):
    """Samples at random as in `Iid`, but sizes in proportion to log-normal draws exp(σ·normal), at least one each."""

    sigma: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.sigma <= 1e6:
            raise InputError("sigma", self.sigma, "a number from 0 (equal sizes) upwards")

    def make(self, y: NDArray[Any], devices: int, seed: int) -> Split:
        _check_devices(devices, len(y))
        log = self.sigma * draws.normal(seed, "split/uneven", np.arange(devices))
        share = np.cumsum(np.exp(log - log.max()))
        extra = np.floor(share / share[-1] * (len(y) - devices) + 0.5).astype(np.int64)
        offsets = np.concatenate([[0], extra + np.arange(1, devices + 1)])
        return Split(draws.permutation(len(y), seed, "split/uneven/order"), offsets)


@register("split", "drawn")
@dataclass(frozen=True)
class Drawn(SplitRule):
    """`samples` samples for each device, drawn with replacement: for more devices than there are samples."""

    samples: int = 32

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise InputError("samples", self.samples, "a whole number, at least 1")

    def make(self, y: NDArray[Any], devices: int, seed: int) -> Split:
        if devices < 1:
            raise InputError("devices", devices, "at least 1")
        if devices * self.samples > MAX_HELD:
            raise InputError(
                "samples", self.samples, f"at most {MAX_HELD // devices} for {devices} devices"
            )
        index = draws.below(
            len(y), seed, "split/drawn", np.arange(devices)[:, None], np.arange(self.samples)
        )
        return Split(index.ravel(), np.arange(devices + 1) * self.samples)


@register("split", "lists")
@dataclass(frozen=True)
class Lists(SplitRule):
    """The user's own lists, from a file: JSON with one list of sample numbers a device, or .npz with index and offsets.

    In the .npz device i holds index[offsets[i] : offsets[i+1]], as in `Split`. Devices may share samples.
    """

    path: Path

    def make(self, y: NDArray[Any], devices: int, seed: int) -> Split:
        path = Path(self.path).expanduser()
        try:
            split = self._read(path, len(y))
        except InputError as error:
            raise DataError(f"{path}: {error}") from error
        if split.devices != devices:
            raise DataError(f"{path} is for {split.devices} devices, not {devices}")
        return split

    def _read(self, path: Path, samples: int) -> Split:
        if path.suffix == ".npz":
            from gossamer.tasks.data import read_npz

            arrays = read_npz(path, ("index", "offsets"))
            index, offsets = arrays["index"], arrays["offsets"]
            if any(
                a.ndim != 1 or a.dtype.kind not in "iu" or len(a) == 0 for a in (index, offsets)
            ):
                raise DataError(f"{path}: index and offsets must be lists of whole numbers")
            if (
                offsets[0] != 0
                or offsets[-1] != len(index)
                or len(offsets) < 2
                or not (offsets[1:] > offsets[:-1]).all()
            ):
                raise DataError(
                    f"{path}: offsets must rise from 0 to the length of index, {len(index)}, at least 1 a device"
                )
            return _checked(index, offsets, samples)
        try:
            with os_errors("read", path):
                size = path.stat().st_size
            if size > MAX_HELD:
                raise DataError(
                    f"{path} is larger than {MAX_HELD >> 30} GiB; give an .npz file with index and offsets"
                )
            with os_errors("read", path):
                lists = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path} is not JSON: {error}") from error
        if not isinstance(lists, list) or not all(isinstance(part, list) for part in lists):
            raise DataError(
                f"{path} must hold a list of lists of sample numbers, one list for each device"
            )
        return from_lists(lists, samples)


def _check_devices(devices: int, samples: int) -> None:
    if devices < 1:
        raise InputError("devices", devices, "at least 1")
    if devices > samples:
        raise InputError(
            "devices", devices, f'at most {samples}, the number of samples, or split = "drawn"'
        )


def _labels(rule: SplitRule, y: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Each sample's label, numbered 0 … C-1 among those that occur, and the count of each."""
    if y.dtype.kind not in "iu":
        kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(rule).__name__).lower()  # as a spec has it
        raise InputError(
            "kind",
            kind,
            "iid, uneven, drawn or lists, since the targets are numbers and not labels",
        )
    _, labels, counts = np.unique(y, return_inverse=True, return_counts=True)
    return labels.reshape(-1).astype(np.int64), counts.astype(np.int64)


def _turns(most: IntArray, total: int) -> IntArray:
    """The first `total` labels of 0, 1, …, C-1, 0, 1, … where label c is passed over after most[c] turns."""
    label = np.repeat(np.arange(len(most)), most)
    turn = np.arange(len(label)) - np.repeat(np.cumsum(most) - most, most)
    return label[np.lexsort((label, turn))][:total]


def _ranks(labels: IntArray, counts: IntArray, seed: int) -> IntArray:
    """Each sample's place in a random order of the samples with its label."""
    order = np.lexsort((draws.bits(seed, "split/order", np.arange(len(labels))), labels))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rank


def own_split(source: Any) -> Split | None:
    """Return the split that a data source brings along, or None if it has none.

    A synthetic problem draws every device's own samples: its method `split()` returns which they
    are, and a study's split rule does not apply.

    Args:
        source: A source of data, or loaded data.

    Returns:
        The samples of each device, or None.

    Example:
        >>> from gossamer.tasks import Digits
        >>> own_split(Digits()) is None
        True
    """
    make = getattr(source, "split", None)
    if make is None:
        return None
    split: Split = make()
    return split


def _share(
    labels: IntArray, slot_label: IntArray, slot_device: IntArray, devices: int, seed: int
) -> Split:
    """Each label's samples, shuffled, in even parts to the slots that ask for that label."""
    counts, slots = np.bincount(labels), np.bincount(slot_label)
    part = _ranks(labels, counts, seed) * slots[labels] // counts[labels]
    first = (
        np.cumsum(slots) - slots
    )  # where a label's slots begin once the slots are sorted by label
    owner = slot_device[np.argsort(slot_label, kind="stable")][first[labels] + part]
    return _by_owner(owner, devices)


def _by_owner(owner: IntArray, devices: int) -> Split:
    sizes = np.bincount(owner, minlength=devices)
    return Split(np.argsort(owner, kind="stable"), np.concatenate([[0], np.cumsum(sizes)]))


def _nobody_empty(owner: IntArray, devices: int) -> IntArray:
    """Each device without samples takes the last one of the device that holds most at that time."""
    split = _by_owner(owner, devices)
    end = split.offsets[1:].copy()
    largest = [(-int(size), device) for device, size in enumerate(split.sizes)]
    heapq.heapify(largest)
    for empty in np.flatnonzero(split.sizes == 0):
        size, donor = largest[0]
        end[donor] -= 1
        owner[split.index[end[donor]]] = empty
        heapq.heapreplace(largest, (size + 1, donor))
    return owner
