"""Simulated seconds: how long devices compute and links carry, and the clock that every device has of its own.

Nobody waits for everybody: a device goes on as soon as it has what its own neighbours of the round sent. So a slow device or
link holds up its neighbours at once and the others only as the delay spreads, round by round.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from gossamer import draws
from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.errors import DataError, InputError
from gossamer.network import limits
from gossamer.network.base import BoolArray, IntArray
from gossamer.network.traces import Log
from gossamer.network.weights import FloatArray, Weights

Quantity = Literal["compute", "rate", "latency"]
_VALUES = {
    "device": ("compute",),
    "a": ("rate", "latency"),
}  # what a trace of devices says, and one of links


@register("quantity", "log-uniform")
@dataclass(frozen=True)
class LogUniform:
    """Drawn for each device or link by itself, uniform in the logarithm: 1 to 10 is as likely as 10 to 100.

    `every`: drawn anew every so many rounds; 0: once and for all.

    >>> LogUniform(1e5, 1e7)
    LogUniform(low=100000.0, high=10000000.0, every=0)
    """

    low: float
    high: float
    every: int = 0

    def __post_init__(self) -> None:
        checks.positive("low", self.low)
        checks.positive("high", self.high)
        if self.high < self.low:
            raise InputError("high", self.high, f"a number of at least low, which is {self.low}")
        checks.whole("every", self.every, 0)

    def at(self, seed: int, purpose: str, t: int, *who: IntArray) -> FloatArray:
        u = draws.uniform(seed, purpose, t // self.every if self.every else 0, *who)
        return np.asarray(self.low * (self.high / self.low) ** u)


@register("quantity", "trace")
@dataclass(frozen=True)
class TimingTrace:
    """Measured values from a CSV file whose first line names its columns.

    Devices: `device,compute`, one line a device. Links: `a,b,rate`, `a,b,latency` or `a,b,rate,latency`; a line holds both
    ways. With a column `round`, a value holds from that round on until a later line for the same device or link. Devices are
    numbered from 0. Whoever has no line (yet) takes the `default`; without one that is an error.

        Timing(compute=0.02, rate=TimingTrace("links.csv"), latency=TimingTrace("links.csv"))
    """

    path: str | Path
    default: float | None = None
    columns: dict[str, FloatArray] = field(
        init=False, repr=False, compare=False
    )  # the values by name, sorted by _key
    _codes: IntArray = field(init=False, repr=False, compare=False)  # the devices or links, sorted
    _rounds: IntArray = field(
        init=False, repr=False, compare=False
    )  # the rounds in which something changes, sorted
    _key: IntArray = field(
        init=False, repr=False, compare=False
    )  # (place in _codes, number of _rounds up to its own)

    def __post_init__(self) -> None:
        log = Log(self.path)
        lines = iter(log)
        names = next(lines, [])
        who = ["device"] if "device" in names else ["a", "b"]
        given = [name for name in names if name in _VALUES[who[0]]]
        needed = [*who, *dict.fromkeys(given)]
        if not given or sorted(names) not in (sorted(needed), sorted([*needed, "round"])):
            raise log.wrong(
                f"expected names of columns such as device,compute or a,b,round,rate, not {','.join(names)[:60]!r}"
            )
        cells = array("d")
        for words in lines:
            if len(words) != len(names):
                raise log.wrong(
                    f"expected {len(names)} values ({','.join(names)}), not {' '.join(words)[:60]!r}"
                )
            cells.extend(_cell(log, name, word) for name, word in zip(names, words, strict=True))
        table = dict(zip(names, np.array(cells).reshape(-1, len(names)).T, strict=True))
        code = _code(*(table[name].astype(np.int64) for name in who))
        round_ = table["round"].astype(np.int64) if "round" in table else np.zeros_like(code)
        (codes, place), (rounds, when) = (
            np.unique(part, return_inverse=True) for part in (code, round_)
        )
        key = place * (len(rounds) + 1) + when + 1
        order = np.argsort(key)
        key = key[order]
        twice = np.flatnonzero(key[1:] == key[:-1])
        if len(twice):
            raise DataError(
                f"{self.path} has two values for {_name(code[order][twice[0]], who)} in one round; give one"
            )
        values = {name: table[name][order] for name in given}
        for name, value in {
            "columns": values,
            "_codes": codes,
            "_rounds": rounds,
            "_key": key,
        }.items():
            object.__setattr__(self, name, value)

    def at(self, name: Quantity, t: int, *who: IntArray) -> FloatArray:
        code = _code(*who)
        place = np.searchsorted(self._codes, code)
        size, passed = len(self._rounds) + 1, np.searchsorted(self._rounds, t, side="right")
        row = np.searchsorted(self._key, place * size + passed, side="right") - 1
        listed = np.isin(code, self._codes) & (row >= 0)
        listed[listed] = self._key[row[listed]] // size == place[listed]
        if self.default is None and not listed.all():
            missing = _name(code[np.argmin(listed)], ["device"] if len(who) == 1 else ["a", "b"])
            raise DataError(
                f"{self.path} has no {name} for {missing} in round {t}; add a line, or give a default"
            )
        value: FloatArray = np.full(len(code), 0.0 if self.default is None else self.default)
        value[listed] = self.columns[name][row[listed]]
        return value


def _cell(log: Log, name: str, word: str) -> float:
    value = log.number_in(word, f"the {name}")
    if name in ("device", "a", "b", "round"):
        limit = limits.MAX_ROUNDS if name == "round" else limits.MAX_DEVICES
        if not 0 <= value < limit or value != int(value):
            raise log.wrong(f"the {name} {word} is not a whole number from 0 to {limit - 1}")
    elif value < 0 or (value == 0 and name == "rate"):
        raise log.wrong(
            f"the {name} {word} is not a number {'above' if name == 'rate' else 'from'} 0"
        )
    return value


def _code(*who: IntArray) -> IntArray:
    """One number for a device, or for a link whichever way it is named."""
    if len(who) == 1:
        return who[0]
    return np.minimum(*who) * limits.MAX_DEVICES + np.maximum(*who)


def _name(code: int, who: list[str]) -> str:
    return (
        f"device {code}"
        if len(who) == 1
        else f"the link {code // limits.MAX_DEVICES}–{code % limits.MAX_DEVICES}"
    )


@dataclass(frozen=True)
class Timing:
    """How long things take: each is a number, the same for all, or drawn (`LogUniform`), or measured (`TimingTrace`).

    `compute`: seconds that a device needs for one local gradient step. `rate`: bytes a second of a link, each way.
    `latency`: seconds from sending until the first byte is there. Draws are pure in (seed, device or link, round).

    >>> Timing(compute=0.02, rate=LogUniform(1e5, 1e7), latency=0.01).of("compute", 0, np.arange(2)).tolist()
    [0.02, 0.02]
    """

    compute: float | LogUniform | TimingTrace
    rate: float | LogUniform | TimingTrace
    latency: float | LogUniform | TimingTrace = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, about in (("compute", "device"), ("rate", "link"), ("latency", "link")):
            value = getattr(self, name)
            check = checks.positive if name == "rate" else checks.not_negative
            if isinstance(value, TimingTrace):
                if name not in value.columns:
                    accepted = f'a {about} trace with a column "{name}"; this one has {", ".join(value.columns)}'
                    raise InputError(name, str(value.path), accepted)
                if value.default is not None:
                    check(f"{name}.default", value.default)
            elif not isinstance(value, LogUniform):
                check(name, value)
        limits.check_drawn(self.seed)

    def of(self, name: Quantity, t: int, *who: IntArray) -> FloatArray:
        """The compute times of devices, or the rates or latencies of links (a, b), in round t."""
        value: float | LogUniform | TimingTrace = getattr(self, name)
        if isinstance(value, LogUniform):
            return value.at(
                self.seed,
                f"timing/{name}",
                t,
                *((np.minimum(*who), np.maximum(*who)) if len(who) == 2 else who),
            )
        return (
            value.at(name, t, *who)
            if isinstance(value, TimingTrace)
            else np.full(len(who[0]), float(value))
        )

    def carrying(self, t: int, a: IntArray, b: IntArray, size: float | FloatArray) -> FloatArray:
        """Seconds that `size` bytes take over each link."""
        return self.of("latency", t, a, b) + size / self.of("rate", t, a, b)


@dataclass(eq=False)
class Clock:
    """When each device ended its last round, in seconds since the start.

    A device begins a round when it ended the one before. It computes and exchanges one after the other, in the order that its
    method has, and ends when it is done with both: that a gradient at the local model could be computed while messages are
    on their way is not made use of. All that goes from one device to another in a round goes as one message. Messages share
    nothing: a device sends to all of its neighbours at once, each at the link's own rate. A device that is away, or that has
    nothing to do in a round, keeps its clock.

    >>> from gossamer.network import Links, metropolis
    >>> clock = Clock(Timing(compute=1.0, rate=100.0, latency=0.5), np.zeros(3))
    >>> clock.compute(0, np.array([1, 2, 1]))
    >>> clock.exchange(0, metropolis(Links.of(3, [(0, 1)])), size=50)
    >>> clock.now.tolist()
    [3.0, 2.0, 1.0]
    """

    timing: Timing
    now: FloatArray

    def compute(self, t: int, steps: IntArray) -> None:
        """Each device takes so many gradient steps."""
        self.now += steps * self.timing.of("compute", t, np.arange(len(self.now)))

    def exchange(self, t: int, weights: Weights, size: float | FloatArray) -> None:
        """Neighbours send each other `size` bytes over each link and wait for what is sent to them.

        `size` is the same for all, or one number a link, or [2, links]: what goes to a, and what goes to b.
        A device i goes on at max(i ready, max over its neighbours j of (j ready + latency_ij + size/rate_ij)).
        """
        if not np.any(size):
            return
        a, b = weights.a, weights.b
        to_a, to_b = np.stack([self.now[b], self.now[a]]) + self.timing.carrying(t, a, b, size)
        if weights.back is not None:  # where nothing is sent, nothing is waited for
            to_a, to_b = (
                np.where(weights.value == 0, 0.0, to_a),
                np.where(weights.back == 0, 0.0, to_b),
            )
        np.maximum.at(self.now, a, to_a)
        np.maximum.at(self.now, b, to_b)

    def average(self, t: int, here: BoolArray | None, size: float, star: bool = False) -> None:
        """A ring all-reduce of `size` bytes, for which all who are here wait for each other; or a `star` about a server.

        The m devices form a ring by their numbers. It takes 2·(m − 1) steps, in each of which every device sends 1/m of the
        vector to the next; a step takes as long as the slowest link of the ring. A server has the number after the last
        device's: it waits for all of them, then sends the average back, each way the whole vector.
        """
        ring = np.arange(len(self.now)) if here is None else np.flatnonzero(here)
        m = len(ring)
        if star and m and size:
            trip = self.timing.carrying(t, ring, np.full(m, len(self.now)), size)
            self.now[ring] = (self.now[ring] + trip).max() + trip
        elif m > 1 and size:
            step = self.timing.carrying(t, ring, np.roll(ring, -1), size / m).max()
            self.now[ring] = self.now[ring].max() + 2 * (m - 1) * step
