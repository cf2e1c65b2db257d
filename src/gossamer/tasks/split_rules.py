"""Rules that deal out samples to devices.

A rule is a frozen dataclass; `make` is a pure function of labels, number of devices and seed, and
`make_for` also of what is known of the devices.
"""

from __future__ import annotations

import heapq
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer import draws
from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.tasks.splits import IntArray, Split

MAX_HELD = 1 << 30
"""Most sample numbers that a split may hold (8 GiB)."""


class SplitRule(ABC):
    """A way to deal out the samples to the devices."""

    @abstractmethod
    def make(self, y: NDArray[Any], devices: int, seed: int) -> Split:
        """Split samples over the devices.

        Args:
            y: Targets of the samples: integers [samples] are labels, all others are not.
            devices: Number of devices.
            seed: The seed of the run.

        Raises:
            InputError: If there are too few samples, or the rule needs labels.
        """

    def make_for(
        self, y: NDArray[Any], devices: int, seed: int, groups: Mapping[str, Sequence[str]]
    ) -> Split:
        """Split samples over devices of which more is known than their number.

        Args:
            y: Targets of the samples, as for `make`.
            devices: Number of devices.
            seed: The seed of the run.
            groups: What the network knows of its devices, such as their class or ward: by name of
                the property, one value per device. Most rules do not use it.

        Raises:
            InputError: As `make` does, or if the rule needs a property that is not there.
        """
        return self.make(y, devices, seed)


@register("split", "iid")
@dataclass(frozen=True)
class Iid(SplitRule):
    """Give every sample to one device at random. Sizes differ by at most one.

    Example:
        >>> Iid().make(np.zeros(10), devices=3, seed=0).sizes.tolist()
        [3, 3, 4]
    """

    def make(self, y: NDArray[Any], devices: int, seed: int) -> Split:
        _check_devices(devices, len(y))
        order = draws.permutation(len(y), seed, "split/iid")
        return Split(order, np.arange(devices + 1) * len(y) // devices)


@register("split", "one-label")
@dataclass(frozen=True)
class OneLabel(SplitRule):
    """One label per device: device i holds label i mod C, where C labels occur.

    Devices with the same label share its samples evenly. A label that has as many devices as
    samples is skipped by later devices, so that there may be as many devices as samples.

    Example:
        >>> split = OneLabel().make(np.array([0, 1, 0, 1]), devices=2, seed=0)
        >>> split.of(1).tolist()
        [1, 3]
    """

    def make(self, y: NDArray[Any], devices: int, seed: int) -> Split:
        labels, counts = _labels(self, y)
        _check_devices(devices, len(y))
        if devices < len(counts):
            accepted = (
                f"at least {len(counts)}, the number of labels, "
                'or k labels per device: split = "labels"'
            )
            raise InputError("devices", devices, accepted)
        return _share(labels, _turns(counts, devices), np.arange(devices), devices, seed)


@register("split", "labels")
@dataclass(frozen=True)
class Labels(SplitRule):
    """k different labels per device, chosen at random; nearly as many devices hold each label.

    The devices that hold a label share its samples evenly. `Labels(1)` is `OneLabel` in a random
    order.

    Args:
        k: Number of labels per device.

    Raises:
        InputError: If k is below 1.

    Example:
        >>> y = np.arange(30) % 3
        >>> len(np.unique(y[Labels(2).make(y, devices=6, seed=0).of(0)]))
        2
    """

    k: int = 2

    def __post_init__(self) -> None:
        checks.whole("k", self.k, 1, noun="a whole number of labels")

    def make(self, y: NDArray[Any], devices: int, seed: int) -> Split:
        labels, counts = _labels(self, y)
        _check_devices(devices, len(y))
        if self.k > len(counts):
            raise InputError("k", self.k, f"at most {len(counts)}, the number of labels")
        if devices * self.k < len(counts):
            least = math.ceil(len(counts) / devices)
            accepted = f"at least {least}, so that the devices hold all {len(counts)} labels"
            raise InputError("k", self.k, accepted)
        most = np.minimum(counts, devices)  # a device holds a label once, with at least one sample
        if devices * self.k > most.sum():
            raise InputError(
                "devices", devices, f"fewer: the samples do not suffice for {self.k} labels on each"
            )
        left = np.bincount(_turns(most, devices * self.k), minlength=len(counts))
        chosen = np.empty((devices, self.k), dtype=np.int64)
        for device in range(devices):
            # Take the labels that most devices have still to take. That is always possible, as for
            # any regular bipartite graph.
            tie = draws.bits(seed, "split/labels", device, np.arange(len(counts)))
            chosen[device] = np.lexsort((tie, -left))[: self.k]
            left[chosen[device]] -= 1
        return _share(labels, chosen.ravel(), np.repeat(np.arange(devices), self.k), devices, seed)


@register("split", "dirichlet")
@dataclass(frozen=True)
class Dirichlet(SplitRule):
    """Split each label's samples in proportions drawn from Dirichlet(α, …, α).

    Small α gives few labels per device, large α is close to IID. A device that would get no sample
    takes one from the device that holds most.

    Args:
        alpha: The concentration α.

    Raises:
        InputError: If alpha is not from 1e-9 to 1e9.

    Example:
        >>> int(Dirichlet(0.5).make(np.arange(100) % 10, devices=5, seed=0).sizes.sum())
        100
    """

    alpha: float = 0.5

    def __post_init__(self) -> None:
        checks.number("alpha", self.alpha, least=1e-9, most=1e9)

    def make(self, y: NDArray[Any], devices: int, seed: int) -> Split:
        labels, counts = _labels(self, y)
        _check_devices(devices, len(y))
        rank = _ranks(labels, counts, seed)
        owner = np.empty(len(y), dtype=np.int64)
        for label, count in enumerate(counts):
            # Where the proportions cut the label's shuffled samples. Each label rounds with its own
            # phase: otherwise, with few samples per device, the same devices would gain every time.
            phase = draws.uniform(seed, "split/dirichlet/phase", label)
            cuts = np.floor(np.cumsum(self._proportions(label, devices, seed)) * count + phase)
            cuts[-1] = count
            mine = labels == label
            owner[mine] = np.searchsorted(cuts, rank[mine], side="right")
        return _by_owner(_fill_empty(owner, devices), devices)

    def _proportions(self, label: int, devices: int, seed: int) -> NDArray[np.float64]:
        """Return Gamma(α) draws, divided by their sum.

        Gamma(α) is Gamma(α+1)·U^(1/α). It is computed as a logarithm: for small α the draws
        themselves underflow.
        """
        from scipy.special import gammaincinv

        every = np.arange(devices)
        tiny = 2.0**-54  # keeps the logarithm of 0 out
        u = draws.uniform(seed, "split/dirichlet/gamma", label, every) + tiny
        v = draws.uniform(seed, "split/dirichlet/power", label, every) + tiny
        log = np.log(gammaincinv(self.alpha + 1.0, u)) + np.log(v) / self.alpha
        share = np.exp(log - log.max())
        return np.asarray(share / share.sum())


@register("split", "uneven")
@dataclass(frozen=True)
class Uneven(SplitRule):
    """Samples at random as in `Iid`, with sizes in proportion to log-normal draws exp(σ·normal).

    Args:
        sigma: Standard deviation σ of the logarithm of the sizes; 0 for equal sizes.

    Raises:
        InputError: If sigma is negative or above 1e6.

    Example:
        >>> int(Uneven(1.0).make(np.zeros(100), devices=5, seed=0).sizes.min()) >= 1
        True
    """

    sigma: float = 1.0

    def __post_init__(self) -> None:
        checks.number("sigma", self.sigma, least=0, most=1e6)

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
    """Samples of each device drawn with replacement, for more devices than samples.

    Args:
        samples: Number of samples per device.

    Raises:
        InputError: If `samples` is below 1.

    Example:
        >>> Drawn(4).make(np.zeros(10), devices=20, seed=0).index.shape
        (80,)
    """

    samples: int = 32

    def __post_init__(self) -> None:
        checks.whole("samples", self.samples, 1)

    def make(self, y: NDArray[Any], devices: int, seed: int) -> Split:
        checks.whole("devices", devices, 1)
        if devices * self.samples > MAX_HELD:
            accepted = f"at most {MAX_HELD // devices} for {devices} devices"
            raise InputError("samples", self.samples, accepted)
        every = np.arange(devices)[:, None]
        index = draws.below(len(y), seed, "split/drawn", every, np.arange(self.samples))
        return Split(index.ravel(), np.arange(devices + 1) * self.samples)


@register("split", "by-class")
@dataclass(frozen=True)
class ByClass(SplitRule):
    """Devices of one class hold the same labels, and classes hold different ones.

    The classes of the devices, such as school class or ward, come from a column of the network's
    contact log. Of G classes in sorted order and C labels, class g holds the labels g, g + G,
    g + 2G, …; if there are more classes than labels, class g holds the label g mod C. All devices
    that hold a label share its samples evenly, so that every sample is held by one device. The seed
    changes which samples of its labels a device holds, not the labels.

    Args:
        column: The column with the classes. It may be left empty if the log has only one.

    Example:
        >>> y = np.arange(40) % 4
        >>> ward = {"ward": ("east", "west", "east", "west")}
        >>> split = ByClass().make_for(y, devices=4, seed=0, groups=ward)
        >>> [np.unique(y[split.of(device)]).tolist() for device in range(4)]
        [[0, 2], [1, 3], [0, 2], [1, 3]]
    """

    column: str = ""

    def make(self, y: NDArray[Any], devices: int, seed: int) -> Split:
        return self.make_for(y, devices, seed, {})

    def make_for(
        self, y: NDArray[Any], devices: int, seed: int, groups: Mapping[str, Sequence[str]]
    ) -> Split:
        labels, counts = _labels(self, y)
        _check_devices(devices, len(y))
        names, number = np.unique(self._classes(groups), return_inverse=True)
        turns = math.ceil(len(counts) / len(names))
        held = number.reshape(-1, 1) + len(names) * np.arange(turns)
        if turns == 1:
            held %= len(counts)
        device, turn = np.nonzero(held < len(counts))
        split = _share(labels, held[device, turn], device, devices, seed)
        if not split.sizes.all():
            name = str(names[number.reshape(-1)[np.argmin(split.sizes)]])
            accepted = f"fewer: the labels of class {name!r} have fewer samples than devices"
            raise InputError("devices", devices, accepted)
        return split

    def _classes(self, groups: Mapping[str, Sequence[str]]) -> Sequence[str]:
        """Return the class of each device."""
        if not groups:
            accepted = "another split, or a network of a contact log with a column of classes"
            raise InputError("kind", "by-class", accepted)
        column = self.column
        if not column and len(groups) == 1:
            (column,) = groups
        if column not in groups:
            raise InputError("column", self.column, f"one of {', '.join(map(repr, groups))}")
        return groups[column]


def _check_devices(devices: int, samples: int) -> None:
    checks.whole("devices", devices, 1)
    if devices > samples:
        accepted = f'at most {samples}, the number of samples, or split = "drawn"'
        raise InputError("devices", devices, accepted)


def _labels(rule: SplitRule, y: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Return each sample's label, numbered 0 … C-1 among those that occur, and their counts."""
    if y.dtype.kind not in "iu" or y.ndim != 1:
        kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(rule).__name__).lower()  # the kind in specs
        accepted = "iid, uneven, drawn or lists, since a target is not one label"
        raise InputError("kind", kind, accepted)
    _, labels, counts = np.unique(y, return_inverse=True, return_counts=True)
    return labels.reshape(-1).astype(np.int64), counts.astype(np.int64)


def _turns(most: IntArray, total: int) -> IntArray:
    """Return `total` labels of 0, 1, …, C-1, 0, 1, …, with label c at most most[c] times."""
    label = np.repeat(np.arange(len(most)), most)
    turn = np.arange(len(label)) - np.repeat(np.cumsum(most) - most, most)
    return label[np.lexsort((label, turn))][:total]


def _ranks(labels: IntArray, counts: IntArray, seed: int) -> IntArray:
    """Return each sample's position in a random order of the samples with its label."""
    order = np.lexsort((draws.bits(seed, "split/order", np.arange(len(labels))), labels))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rank


def _share(
    labels: IntArray, slot_label: IntArray, slot_device: IntArray, devices: int, seed: int
) -> Split:
    """Give each label's samples, shuffled, in even parts to the slots with that label.

    Args:
        labels: The label of each sample.
        slot_label: The label of each slot.
        slot_device: The device of each slot.
        devices: Number of devices.
        seed: The seed of the run.
    """
    counts = np.bincount(labels)
    slots = np.bincount(slot_label)
    part = _ranks(labels, counts, seed) * slots[labels] // counts[labels]
    first = np.cumsum(slots) - slots  # index of a label's first slot, sorted by label
    owner = slot_device[np.argsort(slot_label, kind="stable")][first[labels] + part]
    return _by_owner(owner, devices)


def _by_owner(owner: IntArray, devices: int) -> Split:
    sizes = np.bincount(owner, minlength=devices)
    return Split(np.argsort(owner, kind="stable"), np.concatenate([[0], np.cumsum(sizes)]))


def _fill_empty(owner: IntArray, devices: int) -> IntArray:
    """Let each device without samples take the last one of the device that holds most."""
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
