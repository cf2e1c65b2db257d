"""Which implementation of an operation serves: the one that is fastest on this processor.

An operation has classes of sizes. For each class the compiled kernels of every instruction set that
this processor has, and plain torch, are measured at the first use of any of them. The result is
kept in the user's cache folder, so that all processes of a machine compute with the same
implementations: two runs of a study are equal bit for bit.

The environment variable GOSSAMER_BACKEND forces one: "torch", "avx512", "avx2" or "neon".
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import sqrt

import torch

from gossamer._core import checks
from gossamer._core.threads import use_threads
from gossamer.backend import kept_choice, limits, loader
from gossamer.backend.compiled import Kernels
from gossamer.errors import InputError

VARIABLE = "GOSSAMER_BACKEND"
TORCH = "torch"
BACKENDS = ("auto", TORCH, *loader.TITLES)

Table = dict[str, str]
"""The name of the implementation by class of an operation, such as {"roots 3": "avx2"}."""

Call = Callable[[Kernels | None], object]
"""Runs an operation once with some kernels; None: with plain torch."""

KERNELS: dict[str, Kernels] = {name: Kernels(name, at) for name, at in loader.load().items()}
"""The compiled kernels that this processor can run, best first."""

OPERATIONS: dict[str, Operation] = {}
"""All operations, by name."""

_table: Table | None = None
_serving: dict[str, Kernels | None] = {}


@dataclass(frozen=True, eq=False)
class Operation:
    """An operation with several implementations.

    Args:
        name: Name of the operation.
        sizes: A typical size of each class, ascending. Another size belongs to the nearest class,
            by ratio.
        prepare: Takes a typical size and returns a function that runs the operation on such
            tensors.
    """

    name: str
    sizes: tuple[int, ...]
    prepare: Callable[[int], Call]
    bounds: list[float] = field(init=False)
    keys: list[str] = field(init=False)

    def __post_init__(self) -> None:
        bounds = [sqrt(a * b) for a, b in zip(self.sizes, self.sizes[1:], strict=False)]
        object.__setattr__(self, "bounds", bounds)
        object.__setattr__(self, "keys", [f"{self.name} {size}" for size in self.sizes])
        OPERATIONS[self.name] = self

    def serving(self, size: float) -> Kernels | None:
        """Return the kernels that serve tensors of a size, or None if plain torch does.

        Args:
            size: The size.
        """
        if _table is None:
            _set(_decide())
        return _serving[self.keys[bisect_left(self.bounds, size)]]


def operation(name: str, sizes: Sequence[int]) -> Callable[[Callable[[int], Call]], Operation]:
    """Return a decorator that makes an `Operation` of its `prepare` function.

    Args:
        name: Name of the operation.
        sizes: A typical size of each class, ascending.
    """
    return lambda prepare: Operation(name, tuple(sizes), prepare)


def choices() -> Table:
    """Return which implementation serves each class of each operation."""
    if _table is None:
        _set(_decide())
    assert _table is not None
    return dict(_table)


def any_kernels() -> Kernels | None:
    """Return the kernels that serve the most classes, or None if plain torch serves all."""
    names = [name for name in choices().values() if name != TORCH]
    if not names:
        return None
    return KERNELS[max(names, key=names.count)]


def use(table: Mapping[str, str]) -> None:
    """Use these implementations in this process from now on.

    Args:
        table: As from `choices`. What this processor does not have is replaced by its best.
    """
    best = next(iter([*KERNELS, TORCH]))
    chosen = {}
    for key in _keys():
        name = table.get(key, best)
        if name != TORCH and name not in KERNELS:
            name = best
        chosen[key] = name
    _set(chosen)


@contextmanager
def using(table: Mapping[str, str] | str) -> Iterator[None]:
    """Use these implementations in a block.

    Args:
        table: As from `choices`, or one name for all. An empty table changes nothing.
    """
    if isinstance(table, str):
        table = dict.fromkeys(_keys(), table)
    if not table:
        yield
        return
    before = _table
    use(table)
    try:
        yield
    finally:
        _set(before)


def describe() -> str:
    """Return which kernels serve, for the record of a run's versions."""
    if not KERNELS:
        return f"none: {loader.why_none()}"
    keys_by_name: dict[str, list[str]] = {}
    for key, name in choices().items():
        keys_by_name.setdefault(name, []).append(key)
    if list(keys_by_name) == [TORCH]:
        return f"none: {VARIABLE} = torch"
    most = max(keys_by_name, key=lambda name: len(keys_by_name[name]))
    parts = [f"compiled, {_title(most)}"]
    for name, keys in keys_by_name.items():
        if name != most:
            parts.append(f"{_title(name)} for {', '.join(keys)}")
    return "; ".join(parts)


def _title(name: str) -> str:
    return loader.TITLES.get(name, name)


def _keys() -> list[str]:
    keys = []
    for one in OPERATIONS.values():
        keys += one.keys
    return keys


def _set(table: Table | None) -> None:
    global _table
    _table = table
    _serving.clear()
    for key, name in (table or {}).items():
        _serving[key] = KERNELS.get(name)


def _decide() -> Table:
    """Return the choice that the environment forces, that is kept, or that a measurement makes.

    Raises:
        InputError: If the environment forces a backend that does not exist, or not here.
    """
    forced = os.environ.get(VARIABLE, "auto")
    checks.one_of(VARIABLE, forced, BACKENDS)
    if forced not in ("auto", TORCH, *KERNELS):
        available = ", ".join(["auto", TORCH, *KERNELS])
        raise InputError(VARIABLE, forced, f"one that this machine has: {available}")
    names = [*KERNELS, TORCH]
    if forced != "auto":
        return dict.fromkeys(_keys(), forced)
    if not KERNELS:
        return dict.fromkeys(_keys(), TORCH)
    kept = kept_choice.read(_keys(), names)
    if kept is None:
        kept = kept_choice.keep(measure(), _keys(), names)
    if kept is None:  # nothing can be kept: without a measurement, all processes choose alike
        return dict.fromkeys(_keys(), names[0])
    return kept


def measure() -> dict[str, dict[str, float]]:
    """Return the seconds of every implementation, by class of an operation.

    The implementations alternate, and the shortest time of each counts, so that other load on the
    machine affects all alike.
    """
    seconds = {}
    best = next(iter([*KERNELS, TORCH]))  # serves what an operation calls meanwhile
    with using(best), use_threads(1), torch.random.fork_rng(devices=[]), torch.no_grad():
        for one in OPERATIONS.values():
            for key, size in zip(one.keys, one.sizes, strict=True):
                seconds[key] = _time(one.prepare(size))
    return seconds


def _time(call: Call) -> dict[str, float]:
    implementations: dict[str, Kernels | None] = {**KERNELS, TORCH: None}
    shortest = dict.fromkeys(implementations, float("inf"))
    for turn in range(1 + limits.CHOICE_TURNS):
        for name, kernels in implementations.items():
            begin = time.perf_counter()
            call(kernels)
            if turn > 0:  # the first call allocates
                shortest[name] = min(shortest[name], time.perf_counter() - begin)
    return shortest
