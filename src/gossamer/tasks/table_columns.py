"""Columns of tables as arrays of inputs and targets. Every refusal names column, row and table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from gossamer.errors import DataError, InputError, nearest
from gossamer.tasks.data import MAX_CLASSES
from gossamer.tasks.label_checks import listed, looks_like_labels, warn

if TYPE_CHECKING:
    import pyarrow

FloatArray = NDArray[np.float64]

_MANY_LABELS = 100
"""Whole numbers with more different values than this, and than a tenth of the rows, are taken for
measurements until the user says that they are labels."""

_HINTS = {
    "inputs": "name the columns of numbers to use: inputs = [...]",
    "target": 'give a column of numbers, or targets = "labels"',
}


@dataclass(frozen=True)
class Part:
    """A table, or a part of one.

    Args:
        where: Its name in messages, such as a path.
        table: Its columns.
    """

    where: str
    table: pyarrow.Table

    def check(self, field: str, name: str) -> None:
        """Refuse a column that the table does not have.

        Args:
            field: What asks for it, such as "target".
            name: Name of the column.
        """
        names = [column for column in self.table.column_names if column]
        if name not in self.table.column_names:
            accepted = f"one of the columns {listed(map(repr, names))} of {self.where}"
            raise InputError(field, name, accepted + nearest(name, names))

    def numbers(self, field: str, name: str) -> FloatArray:
        """Return a column of numbers.

        Args:
            field: What asks for it, such as "inputs".
            name: Name of the column.

        Raises:
            InputError: If there is no such column.
            DataError: If a value is missing, not finite or not a number.
        """
        kind = self.kind(field, name)
        if kind not in ("whole", "number", "bool"):
            example = str(self.table[name][0].as_py())[:40]
            raise DataError(
                f"{self.where}: the column {name!r} holds {kind}, such as {example!r}; "
                f"{_HINTS[field]}"
            )
        values = self._array(name).astype(np.float64)
        self.refuse_rows(name, ~np.isfinite(values), "is not a finite number")
        return values

    def labels(self, name: str) -> NDArray[Any]:
        """Return a column of labels: whole numbers, or text.

        Args:
            name: Name of the column.

        Raises:
            DataError: If a label is neither a whole number nor text.
        """
        kind = self.kind("target", name)
        if kind in ("text", "bool"):
            return self.words("target", name)
        if kind == "whole":  # exactly, however large
            return self._array(name)
        values = self.numbers("target", name)
        whole = np.rint(values).astype(np.int64)
        self.refuse_rows(name, whole != values, "is no whole number, so no label,")
        return whole

    def kind(self, field: str, name: str) -> str:
        """Return what a column holds: "whole", "number", "bool", "text", or a type in words.

        Args:
            field: What asks for it.
            name: Name of the column.
        """
        import pyarrow

        self.check(field, name)
        self._refuse_missing(name)
        column = self.table[name].type
        if pyarrow.types.is_dictionary(column):
            column = column.value_type
        kinds: dict[str, Callable[[Any], bool]] = {
            "whole": pyarrow.types.is_integer,
            "number": pyarrow.types.is_floating,
            "bool": pyarrow.types.is_boolean,
            "text": _is_text,
        }
        for kind, is_kind in kinds.items():
            if is_kind(column):
                return kind
        if pyarrow.types.is_decimal(column):
            return "number"
        return f"values of the type {column}"

    def words(self, field: str, name: str) -> NDArray[np.str_]:
        """Return a column as text.

        Args:
            field: What asks for it, such as "device".
            name: Name of the column.
        """
        self.check(field, name)
        self._refuse_missing(name)
        words = np.array([str(value) for value in self.table[name].to_pylist()])
        self.refuse_rows(name, words == "", "is empty")
        return words

    def _array(self, name: str) -> NDArray[Any]:
        column = self.table[name].combine_chunks()
        return np.asarray(column.to_numpy(zero_copy_only=False))

    def _refuse_missing(self, name: str) -> None:
        column = self.table[name]
        if column.null_count:
            missing = np.asarray(column.is_null().combine_chunks().to_numpy(zero_copy_only=False))
            self.refuse_rows(name, missing, "has no value")

    def refuse_rows(self, name: str, wrong: NDArray[np.bool_], what: str) -> None:
        """Raise an error that names the first of some rows.

        Args:
            name: Name of the column.
            wrong: Which rows.
            what: What is wrong with them.
        """
        if wrong.any():
            raise DataError(
                f"{self.where}: the column {name!r} {what} in row {int(np.argmax(wrong)) + 1} "
                f"({int(wrong.sum()):,} of {len(wrong):,} rows); remove these rows, or do not use "
                "the column"
            )


def _is_text(column: Any) -> bool:
    import pyarrow

    types = pyarrow.types
    return bool(
        types.is_string(column) or types.is_large_string(column) or types.is_string_view(column)
    )


def inputs_of(parts: Sequence[Part], names: Sequence[str]) -> NDArray[np.float32]:
    """Return the inputs of all rows [rows, columns].

    Args:
        parts: The tables.
        names: The columns.
    """
    blocks = []
    for part in parts:
        columns = [part.numbers("inputs", name) for name in names]
        blocks.append(np.stack(columns, axis=1))
    return np.concatenate(blocks).astype(np.float32)


def values_of(parts: Sequence[Part], names: Sequence[str]) -> NDArray[np.float32]:
    """Return the targets of a regression: [rows], or [rows, columns] of several columns.

    Args:
        parts: The tables.
        names: The columns.
    """
    blocks = []
    for part in parts:
        columns = [part.numbers("target", name) for name in names]
        blocks.append(np.stack(columns, axis=1))
    values = np.concatenate(blocks).astype(np.float32)
    if len(names) == 1:
        return values[:, 0]
    return values


def has_labels(parts: Sequence[Part], name: str, targets: str | None) -> bool:
    """True if a column of targets holds labels, and not values of a regression.

    Args:
        parts: The tables, of which all rows count.
        name: The column.
        targets: What the user says, "labels" or "values"; None: text, bools and whole numbers are
            labels.

    Raises:
        InputError: If that is not clear, or cannot be.

    Warns:
        DataWarning: If values of a regression look like labels.
    """
    if targets is not None:
        return targets == "labels"
    kinds = {part.kind("target", name) for part in parts}
    if "number" not in kinds:
        _refuse_many(labels_of(parts, name), name)
        return True
    _warn_of_floats(parts, name)
    return False


def _warn_of_floats(parts: Sequence[Part], name: str) -> None:
    values = torch.from_numpy(values_of(parts, [name]))
    if looks_like_labels(values):
        warn(
            f"the column {name!r} holds {listed(values.unique().tolist())} and is taken for values "
            'of a regression; targets = "labels" takes them for labels, "values" says that they '
            "are none"
        )


def _refuse_many(labels: NDArray[Any], name: str) -> None:
    different = len(np.unique(labels))
    if different <= max(_MANY_LABELS, len(labels) // 10):
        return
    noun = "whole numbers"
    accepted = '"values" for a regression, or "labels"'
    if labels.dtype.kind == "U":
        noun = "words"
        accepted = '"labels" if these are labels'
    found = f"the column {name!r} holds {different:,} different {noun} in {len(labels):,} rows"
    raise InputError("targets", None, f"{accepted}: {found}")


def labels_of(parts: Sequence[Part], name: str) -> NDArray[Any]:
    """Return a column of labels: whole numbers, or text.

    Args:
        parts: The tables.
        name: The column.

    Raises:
        DataError: If a label is neither a whole number nor text.
    """
    blocks = [part.labels(name) for part in parts]
    if len({block.dtype.kind == "U" for block in blocks}) > 1:
        raise DataError(f"the column {name!r} holds text in some files and numbers in others")
    return np.concatenate(blocks)


def number_labels(labels: NDArray[Any], name: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Number labels from 0, in the order of their values.

    Args:
        labels: Whole numbers or text.
        name: The column, for messages.

    Returns:
        The numbers, and the name of each.

    Raises:
        InputError: If there are too many.

    Warns:
        DataWarning: If the labels are whole numbers, but not 0, 1, …
    """
    found, numbers = np.unique(labels, return_inverse=True)
    if len(found) > MAX_CLASSES:
        value = f"{name!r} with {len(found):,} different labels"
        raise InputError("target", value, f"at most {MAX_CLASSES:,} labels")
    if found.dtype.kind in "iu" and (found != np.arange(len(found))).any():
        warn(
            f"the labels of the column {name!r} do not count from 0 without gaps: "
            f"{listed(found.tolist())} become the classes {listed(range(len(found)))}"
        )
    return numbers.reshape(-1).astype(np.int64), tuple(map(str, found.tolist()))
