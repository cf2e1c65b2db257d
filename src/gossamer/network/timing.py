"""Simulated time: how long devices compute and links transmit, with one clock per device.

No device waits for all others: it continues as soon as it has what its own neighbours of the round
sent. So a slow device or link delays its neighbours at once, and the others only as the delay
spreads from round to round.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from gossamer import draws
from gossamer._core import checks
from gossamer._core.arguments import checked
from gossamer._core.registry import register
from gossamer.errors import DataError, InputError
from gossamer.network import limits
from gossamer.network.base import BoolArray, FloatArray, IntArray
from gossamer.network.traces import TraceReader
from gossamer.network.weights import Weights

Quantity = Literal["compute", "rate", "latency"]
_DEVICE_VALUES = ("compute",)
_LINK_VALUES = ("rate", "latency")


@register("quantity", "log-uniform")
@dataclass(frozen=True)
class LogUniform:
    """A random value per device or link, uniform in its logarithm.

    Values from 1 to 10 are as likely as values from 10 to 100.

    Args:
        low: Smallest value, above 0.
        high: Largest value.
        every: Number of rounds that a value stays; 0 for the same value throughout.

    Example:
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

    def at(self, seed: int, purpose: str, t: int, *ids: IntArray) -> FloatArray:
        """Return the values of round t.

        Args:
            seed: Seed of the draws.
            purpose: Name of the draws.
            t: Number of the round.
            ids: Numbers of the devices, or of both ends (lower, higher) of the links.
        """
        draw = t // self.every if self.every else 0
        u = draws.uniform(seed, purpose, draw, *ids)
        return np.asarray(self.low * (self.high / self.low) ** u)


@register("quantity", "trace")
@dataclass(frozen=True)
class TimingTrace:
    """Measured values from a CSV file whose first line names its columns.

    For devices the columns are `device,compute`, one line per device. For links they are
    `a,b,rate`, `a,b,latency` or `a,b,rate,latency`; a line holds for both directions. With a column
    `round`, a value holds from that round until a later line for the same device or link. Devices
    are numbered from 0.

    Args:
        path: The CSV file.
        default: Value of devices or links without a line (up to that round). Without a default
            they are an error.

    Raises:
        DataError: If the file cannot be read or has a wrong line.

    Example:
        A file with rates and latencies of links::

            links = TimingTrace("links.csv")
            Timing(compute=0.02, rate=links, latency=links)
    """

    path: str | Path
    default: float | None = None
    # The values by name, in the order of `_key`.
    columns: dict[str, FloatArray] = field(init=False, repr=False, compare=False)
    # The devices or links, sorted.
    _codes: IntArray = field(init=False, repr=False, compare=False)
    # The rounds in which some value changes, sorted.
    _rounds: IntArray = field(init=False, repr=False, compare=False)
    # Per value: index in `_codes` · (len(_rounds) + 1) + number of `_rounds` up to its own; sorted.
    _key: IntArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        reader = TraceReader(self.path)
        lines = iter(reader)
        names = next(lines, [])
        is_device = "device" in names
        ids = ["device"] if is_device else ["a", "b"]
        values = _DEVICE_VALUES if is_device else _LINK_VALUES
        given = [name for name in names if name in values]
        needed = [*ids, *dict.fromkeys(given)]
        if not given or sorted(names) not in (sorted(needed), sorted([*needed, "round"])):
            shown = ",".join(names)[:60]
            raise reader.error(
                f"expected names of columns such as device,compute or a,b,round,rate, not {shown!r}"
            )
        cells = array("d")
        for words in lines:
            if len(words) != len(names):
                shown = " ".join(words)[:60]
                raise reader.error(
                    f"expected {len(names)} values ({','.join(names)}), not {shown!r}"
                )
            cells.extend(_cell(reader, name, word) for name, word in zip(names, words, strict=True))
        table = dict(zip(names, np.array(cells).reshape(-1, len(names)).T, strict=True))
        code = _code(*(table[name].astype(np.int64) for name in ids))
        since = np.zeros_like(code)
        if "round" in table:
            since = table["round"].astype(np.int64)
        codes, code_index = np.unique(code, return_inverse=True)
        rounds, round_index = np.unique(since, return_inverse=True)
        key = code_index * (len(rounds) + 1) + round_index + 1
        order = np.argsort(key)
        key = key[order]
        repeated = np.flatnonzero(key[1:] == key[:-1])
        if len(repeated):
            name = _name(code[order][repeated[0]], len(ids))
            raise DataError(f"{self.path} has two values for {name} in one round; give one")
        columns = {name: table[name][order] for name in given}
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "_codes", codes)
        object.__setattr__(self, "_rounds", rounds)
        object.__setattr__(self, "_key", key)

    def at(self, name: Quantity, t: int, *ids: IntArray) -> FloatArray:
        """Return the values of round t.

        Args:
            name: The column.
            t: Number of the round.
            ids: Numbers of the devices, or of both ends of the links.

        Raises:
            DataError: If there is no value, and no default.
        """
        code = _code(*ids)
        index = np.searchsorted(self._codes, code)
        size = len(self._rounds) + 1
        passed = np.searchsorted(self._rounds, t, side="right")
        row = np.searchsorted(self._key, index * size + passed, side="right") - 1
        has_value = np.isin(code, self._codes) & (row >= 0)
        has_value[has_value] = self._key[row[has_value]] // size == index[has_value]
        if self.default is None and not has_value.all():
            missing = _name(code[np.argmin(has_value)], len(ids))
            raise DataError(
                f"{self.path} has no {name} for {missing} in round {t}; add a line, "
                "or give a default"
            )
        value: FloatArray = np.full(len(code), 0.0 if self.default is None else self.default)
        value[has_value] = self.columns[name][row[has_value]]
        return value


def _cell(reader: TraceReader, name: str, word: str) -> float:
    """Return the value of one cell of a timing trace, after checking it."""
    value = reader.parse_number(word, f"the {name}")
    if name in ("device", "a", "b", "round"):
        limit = limits.MAX_ROUNDS if name == "round" else limits.MAX_DEVICES
        if not 0 <= value < limit or value != int(value):
            raise reader.error(f"the {name} {word} is not a whole number from 0 to {limit - 1}")
    elif name == "rate" and value <= 0:
        raise reader.error(f"the {name} {word} is not a number above 0")
    elif value < 0:
        raise reader.error(f"the {name} {word} is not a number from 0")
    return value


def _code(*ids: IntArray) -> IntArray:
    """Return one number per device, or per link, whichever of its ends comes first."""
    if len(ids) == 1:
        return ids[0]
    return np.minimum(*ids) * limits.MAX_DEVICES + np.maximum(*ids)


def _name(code: int, ends: int) -> str:
    """Return the device or link of a code in words; a link has two ends."""
    if ends == 1:
        return f"device {code}"
    return f"the link {code // limits.MAX_DEVICES}–{code % limits.MAX_DEVICES}"


@checked
@dataclass(frozen=True)
class Timing:
    """How long computing and sending take.

    Each quantity is a number, the same for all devices or links, or is drawn at random
    (`LogUniform`), or is measured (`TimingTrace`). Draws are a function of the seed, the device or
    link, and the round.

    Args:
        compute: Seconds per local gradient step of a device.
        rate: Bytes per second of a link, in each direction.
        latency: Seconds from sending until the first byte arrives.
        seed: Seed of the random quantities.

    Example:
        >>> timing = Timing(compute=0.02, rate=LogUniform(1e5, 1e7), latency=0.01)
        >>> timing.of("compute", 0, np.arange(2)).tolist()
        [0.02, 0.02]
    """

    compute: float | LogUniform | TimingTrace
    rate: float | LogUniform | TimingTrace
    latency: float | LogUniform | TimingTrace = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, subject in (("compute", "device"), ("rate", "link"), ("latency", "link")):
            value = getattr(self, name)
            check = checks.positive if name == "rate" else checks.not_negative
            if isinstance(value, TimingTrace):
                if name not in value.columns:
                    columns = ", ".join(value.columns)
                    accepted = f'a {subject} trace with a column "{name}"; this one has {columns}'
                    raise InputError(name, str(value.path), accepted)
                if value.default is not None:
                    check(f"{name}.default", value.default)
            elif not isinstance(value, LogUniform):
                check(name, value)
        limits.check_drawn(self.seed)

    def of(self, name: Quantity, t: int, *ids: IntArray) -> FloatArray:
        """Return the values of a quantity in round t.

        Args:
            name: "compute", "rate" or "latency".
            t: Number of the round.
            ids: Numbers of the devices ("compute"), or of both ends of the links.

        Returns:
            One value per device or link.
        """
        value: float | LogUniform | TimingTrace = getattr(self, name)
        if isinstance(value, TimingTrace):
            return value.at(name, t, *ids)
        if isinstance(value, LogUniform):
            if len(ids) == 2:
                ids = (np.minimum(*ids), np.maximum(*ids))
            return value.at(self.seed, f"timing/{name}", t, *ids)
        return np.full(len(ids[0]), float(value))

    def carrying(self, t: int, a: IntArray, b: IntArray, size: float | FloatArray) -> FloatArray:
        """Return the seconds that messages take over links.

        Args:
            t: Number of the round.
            a: First device of each link.
            b: Second device of each link.
            size: Bytes of the messages.
        """
        return self.of("latency", t, a, b) + size / self.of("rate", t, a, b)


@dataclass(eq=False)
class Clock:
    """The time at which each device ended its last round, in seconds since the start.

    A device begins a round when it has ended the one before. It computes and exchanges one after
    the other, in the order of its method, and ends when both are done. (A gradient at the local
    model could be computed while messages are on their way; that is not modelled.) All that one
    device sends to another in a round is one message. Messages share nothing: a device sends to
    all of its neighbours at once, each at the rate of the link. A device that is away, or that has
    nothing to do in a round, keeps its time.

    Args:
        timing: Durations of computing and sending.
        now: The times, changed in place.

    Example:
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
        """Advance each device by its gradient steps.

        Args:
            t: Number of the round.
            steps: Number of gradient steps of each device.
        """
        self.now += steps * self.timing.of("compute", t, np.arange(len(self.now)))

    def exchange(self, t: int, weights: Weights, size: float | FloatArray) -> None:
        """Advance the devices that exchange messages with their neighbours.

        Device i continues at max(i ready, max over its neighbours j of (j ready + latency_ij +
        size/rate_ij)).

        Args:
            t: Number of the round.
            weights: The weights of the round; where a weight is 0, nothing is sent.
            size: Bytes per message: one value for all, one per link, or [2, links] for the
                messages to a and to b.
        """
        if not np.any(size):
            return
        a = weights.a
        b = weights.b
        ready = np.stack([self.now[b], self.now[a]])
        to_a, to_b = ready + self.timing.carrying(t, a, b, size)
        if weights.back is not None:  # a device does not wait for what is not sent
            to_a = np.where(weights.value == 0, 0.0, to_a)
            to_b = np.where(weights.back == 0, 0.0, to_b)
        np.maximum.at(self.now, a, to_a)
        np.maximum.at(self.now, b, to_b)

    def average(self, t: int, active: BoolArray | None, size: float, star: bool = False) -> None:
        """Advance the devices that average a vector among all of them.

        A ring all-reduce takes 2·(m − 1) steps. In each of them every device sends 1/m of the
        vector to the next one by number; a step takes as long as the slowest link of the ring. A
        server has the number after the last device: it waits for all devices, then sends the
        average back; the whole vector goes each way.

        Args:
            t: Number of the round.
            active: Mask of the devices that take part; None for all.
            size: Bytes of the vector.
            star: True for a server instead of a ring.
        """
        ring = np.arange(len(self.now)) if active is None else np.flatnonzero(active)
        m = len(ring)
        if star and m and size:
            trip = self.timing.carrying(t, ring, np.full(m, len(self.now)), size)
            self.now[ring] = (self.now[ring] + trip).max() + trip
        elif m > 1 and size:
            step = self.timing.carrying(t, ring, np.roll(ring, -1), size / m).max()
            self.now[ring] = self.now[ring].max() + 2 * (m - 1) * step
