"""Names, directions and units of measured values, and the targets that are set for them.

This module does not need torch: commands that only read run folders use it too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gossamer._core import checks
from gossamer.errors import InputError

Better = Literal["higher", "lower"]

# Columns of tables of measurements that are not metrics.
_OTHER_COLUMNS = (
    "run",
    "method",
    "seed",
    "round",
    "device",
    "distance",
    "power_distance",
    "messages",
    "bytes",
    "simulated_seconds",
    "joules",
    "steps",
    "staleness",
    "computing",
    "exchanging",
    "waiting",
    "away",
)
# Keys of summary.json that a metric would hide.
_SUMMARY_KEYS = (
    "name",
    "finished",
    "rounds",
    "seconds",
    "events",
    "versions",
    "backend",
    "command",
)
ENDINGS = ("", "_worst", "_best", "_merged", "_merged_power")
"""What follows the name of a metric in the names of its columns: the mean over the devices has the
name itself; the worst and the best device, the merged model and the power mean of all models."""

SAMPLING_ERROR = "_sampling_error"
"""Ending of the half-width of the mean's 95 % interval, if a sample of devices is measured."""

MAX_DEVICE_COLUMNS = 1000
"""Devices up to which the metrics hold every device's own values."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_TARGET = re.compile(r"\s*(?P<name>\S+?)\s*(?P<sign>>=|<=)\s*(?P<number>\S+)\s*")
_DIGITS = 4  # significant digits of a value that is not a share


@dataclass(frozen=True)
class Column:
    """How a metric is named, compared and printed.

    Args:
        name: Name of the metric, and of its column in metrics.parquet.
        better: Whether higher or lower values are better.
        share: The values are shares from 0 to 1, which are printed in per cent.
        unit: Unit of the values; "" if they have none.

    Example:
        >>> Column("accuracy", "higher", share=True).text(0.9)
        '90.00'
        >>> Column("mae", "lower", unit="USD").heading
        'mae, USD'
    """

    name: str
    better: Better = "lower"
    share: bool = False
    unit: str = ""

    def check(self) -> None:
        """Refuse a name that cannot be that of a metric, and an unknown direction.

        Raises:
            InputError: If one is not accepted.
        """
        checks.one_of("better", self.better, ("higher", "lower"))
        usable = isinstance(self.name, str) and _NAME.fullmatch(self.name)
        taken = self.name in (*_OTHER_COLUMNS, *_SUMMARY_KEYS) or str(self.name).startswith(
            "device_"
        )
        endings = (*ENDINGS[1:], SAMPLING_ERROR)
        if not usable or taken or self.name.endswith(endings):
            accepted = (
                "a word of letters, digits, '.', '-' and '_' that is no other column and does not "
                f"end with {', '.join(endings)}"
            )
            raise InputError("name", self.name, accepted)

    @property
    def rising(self) -> bool:
        """True if higher values are better."""
        return self.better == "higher"

    @property
    def scale(self) -> float:
        """Factor of printed values: 100 for shares, which are printed in per cent."""
        return 100.0 if self.share else 1.0

    @property
    def printed_unit(self) -> str:
        """Unit of printed values; "" if they have none."""
        return "%" if self.share else self.unit

    @property
    def heading(self) -> str:
        """The name with the unit of printed values, such as "accuracy, %"."""
        if self.printed_unit:
            return f"{self.name}, {self.printed_unit}"
        return self.name

    def worst(self, values: Any) -> float:
        """Return the worst of some values.

        Args:
            values: A NumPy array.
        """
        return float(values.min() if self.rising else values.max())

    def best(self, values: Any) -> float:
        """Return the best of some values.

        Args:
            values: A NumPy array.
        """
        return float(values.max() if self.rising else values.min())

    def text(self, value: float | None, half: float | None = None) -> str:
        """Return a value as it is printed, without its unit.

        Args:
            value: The value; None or NaN if it was not measured.
            half: Half of the width of its confidence interval, if it has one.

        Example:
            >>> Column("rmse").text(123.456, 1.2)
            '123.5 ± 1.2'
        """
        if value is None or math.isnan(value):
            return "–"
        digits = self._digits(value)
        text = _fixed(value * self.scale, digits)
        if half is None:
            return text
        return f"{text} ± {_fixed(half * self.scale, digits)}"

    def short_text(self, value: float | None, half: float | None = None) -> str:
        """Return a value with its unit, as in a line of progress.

        Args:
            value: The value; None or NaN if it was not measured.
            half: Half of the width of its confidence interval, if it has one.

        Example:
            >>> Column("accuracy", "higher", share=True).short_text(0.912, 0.004)
            '91.2 ± 0.4%'
            >>> Column("rmse", unit="km").short_text(1.23456)
            'rmse 1.235 km'
        """
        text = self.value_text(value, half).replace(" %", "%")
        if self.name == "accuracy":
            return text
        return f"{self.name} {text}"

    def value_text(self, value: float | None, half: float | None = None) -> str:
        """Return a value in few digits with its unit, without the name.

        Args:
            value: The value; None or NaN if it was not measured.
            half: Half of the width of its confidence interval, if it has one.
        """
        if value is None or math.isnan(value):
            return "–"
        if not self.share:
            return f"{self.text(value, half)} {self.unit}".strip()
        text = f"{100 * value:.1f}"
        if half is not None:
            text += f" ± {100 * half:.1f}"
        return f"{text} %"

    def _digits(self, value: float) -> int | None:
        """Return the decimal places of a value; None if it is too large or small for them."""
        if self.share:
            return 2
        size = abs(value)
        if size and not 1e-4 <= size < 1e6:
            return None
        before = 1
        if size >= 1:
            before = math.floor(math.log10(size)) + 1
        return max(0, _DIGITS - before)


def _fixed(value: float, digits: int | None) -> str:
    if digits is None:
        return f"{value:.3g}"
    return f"{value:.{digits}f}"


LOSS = Column("loss")

_BUILT_IN = {
    "accuracy": Column("accuracy", "higher", share=True),
    "top-k": Column("top-k", "higher", share=True),
    "macro-f1": Column("macro-f1", "higher", share=True),
    "iou": Column("iou", "higher", share=True),
    "mae": Column("mae"),
    "rmse": Column("rmse"),
    "r2": Column("r2", "higher"),
    "perplexity": Column("perplexity"),
}


def column_of(kind: str, fields: Mapping[str, Any] | None = None) -> Column:
    """Return the column of a metric from its kind and its fields, as specs write them.

    Args:
        kind: Such as "accuracy", or "python" for a metric that was made in Python.
        fields: The other keys of its table in a spec.

    Example:
        >>> column_of("top-k", {"k": 3}).name
        'top-3'
    """
    fields = fields or {}
    if kind == "top-k":
        return replace(_BUILT_IN[kind], name=f"top-{fields.get('k', 5)}")
    if kind in _BUILT_IN:
        return replace(_BUILT_IN[kind], unit=fields.get("unit", ""))
    known = {}
    for key in ("better", "share", "unit"):
        if key in fields:
            known[key] = fields[key]
    return Column(fields.get("name", kind), **known)


def columns_of(spec: Mapping[str, Any], measured: Sequence[str]) -> list[Column]:
    """Return the metrics of a run, in the order of its spec; the loss is the last.

    Args:
        spec: The spec of the run, as plain tables.
        measured: The names of the columns of its measurements.

    Returns:
        The columns of all metrics that were measured.

    Example:
        >>> found = columns_of({}, ["round", "rmse", "rmse_worst", "rmse_best", "loss"])
        >>> [column.name for column in found]
        ['rmse', 'loss']
    """
    found = []
    for entry in spec.get("measure", {}).get("metrics") or _default_kinds(measured):
        column = _column_of_entry(entry)
        if column is not None and column.name in measured:
            found.append(column)
    found.append(LOSS)
    return found


def _column_of_entry(entry: Any) -> Column | None:
    """Return the column of an entry of a spec; None if it cannot be read."""
    try:
        if isinstance(entry, str):
            return column_of(entry)
        return column_of(str(entry["kind"]), entry)
    except (InputError, KeyError, TypeError):
        return None


def _default_kinds(measured: Sequence[str]) -> list[str]:
    """Return the metrics that a run chose by its data. Runs of version 0.1 have the accuracy."""
    return [kind for kind in _BUILT_IN if kind in measured]


def targets_of(spec: Mapping[str, Any], measured: Sequence[str]) -> list[str]:
    """Return the targets of a run.

    Args:
        spec: The spec of the run, as plain tables; also one of version 0.1.
        measured: The names of the metrics that were measured.

    Returns:
        The targets of the spec; without any, the accuracies of 0.8 and 0.9 if they are measured.
    """
    measure = spec.get("measure", {})
    if "targets" in measure:
        return [target for target in measure["targets"] if Target.parse(target).name in measured]
    found = []
    for column in (_BUILT_IN["accuracy"], LOSS):
        if f"{column.name}_targets" in measure and column.name in measured:
            values = measure[f"{column.name}_targets"]
            found += [Target.of(column, value).text for value in values]
    if found or "accuracy_targets" in measure or "accuracy" not in measured:
        return found
    return list(DEFAULT_TARGETS)


DEFAULT_TARGETS = ("accuracy >= 0.8", "accuracy >= 0.9")
"""Targets of a study that names none, if it measures the accuracy."""


@dataclass(frozen=True)
class Target:
    """A value that a metric is to reach.

    Args:
        name: Name of the metric.
        rising: True if the target is reached from below.
        value: The value to reach.

    Example:
        >>> Target.parse("mae<=40")
        Target(name='mae', rising=False, value=40.0)
        >>> Target.parse("accuracy >= 0.90").text
        'accuracy >= 0.9'
    """

    name: str
    rising: bool
    value: float

    @classmethod
    def parse(cls, text: Any, field: str = "targets") -> Target:
        """Read a target from text.

        Args:
            text: A metric, a direction and a number, such as "mae <= 40".
            field: Name of the argument, for the message.

        Raises:
            InputError: If a part is missing.
        """
        accepted = 'a metric, ">=" or "<=", and a number, such as "accuracy >= 0.9" or "mae <= 40"'
        match = _TARGET.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise InputError(field, text, accepted)
        try:
            value = float(match["number"])
        except ValueError:
            raise InputError(field, text, accepted) from None
        if not math.isfinite(value):
            raise InputError(field, text, accepted)
        return cls(match["name"], match["sign"] == ">=", value)

    @classmethod
    def of(cls, column: Column, value: float) -> Target:
        """Return the target of a metric in its own direction.

        Args:
            column: The metric.
            value: The value to reach.
        """
        return cls(column.name, column.rising, value)

    @property
    def text(self) -> str:
        """The target as summaries write it."""
        sign = ">=" if self.rising else "<="
        return f"{self.name} {sign} {self.value:g}"

    def check(self, columns: Sequence[Column], field: str = "targets") -> None:
        """Refuse a target that no measurement can show.

        Args:
            columns: The metrics that are measured.
            field: Name of the argument, for the message.

        Raises:
            InputError: If the metric is not measured, the direction is the wrong one, or a share
                is not from 0 to 1.
        """
        for column in columns:
            if column.name != self.name:
                continue
            right = Target.of(column, self.value).text
            if column.rising != self.rising:
                accepted = f'"{right}", since a {column.better} {column.name} is better'
                raise InputError(field, self.text, accepted)
            if column.share and not 0 <= self.value <= 1:
                raise InputError(field, self.text, f"a share from 0 to 1 for {column.name}")
            return
        names = ", ".join(column.name for column in columns)
        raise InputError(
            field, self.text, f"a target for one of the metrics that are measured: {names}"
        )

    def reached(self, value: Any) -> Any:
        """True where a value has reached the target.

        Args:
            value: A number or a NumPy array.
        """
        return value >= self.value if self.rising else value <= self.value
