"""Data from tables: CSV and Parquet files, one for all devices or one each, and data frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gossamer import draws
from gossamer._core import checks
from gossamer._core.arguments import checked
from gossamer._core.registry import register
from gossamer.errors import DataError, InputError
from gossamer.tasks import table_columns
from gossamer.tasks.data import Data, checked_arrays, with_devices
from gossamer.tasks.label_checks import listed, warn, warn_of_unseen
from gossamer.tasks.table_columns import Part
from gossamer.tasks.table_files import files_in, read_table, stem
from gossamer.tasks.table_format import TableFormat

Targets = Literal["labels", "values"]

# Share of a device's own rows to test on, if the test tables are common to all devices.
_TEST_SHARE = 0.2


@register("data", "table")
@dataclass(frozen=True)
class Table:
    """Data from CSV or Parquet files with named columns: one file, or one file per device.

    A row is a sample. Of a folder, every file holds the samples of one device, whose name is that
    of the file: a study then needs no split. If the network has devices of the same names, they
    are matched by name, otherwise in the order of the names.

    Args:
        path: A file that ends in .csv, .tsv, .csv.gz, .tsv.gz or .parquet; or a folder of them.
        target: Column of the targets; several columns are the values of one target.
        inputs: Columns of the inputs, which hold numbers. Default: all others that have a name.
        device: Column with the name of the device that holds the sample, instead of a file each.
        targets: "labels" or "values". Default: text, bools and whole numbers are labels, other
            numbers are values of a regression.
        test: Share of each device's rows to test on, drawn at random.
        test_path: File or folder with the rows to test on, instead of a share.
        scale: Scale every input to mean 0 and variance 1 over the training samples.
        pooled: Do not keep the devices apart: a split rule divides the rows.
        seed: Seed of the draw of the test rows. It is not the study's seed.

    Raises:
        InputError: If a value is not accepted.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     for name in ("north", "south"):
        ...         rows = "".join(f"{i},{i * i},{i % 2}\\n" for i in range(10))
        ...         count = Path(folder, f"{name}.csv").write_text("a,b,label\\n" + rows)
        ...     data = Table(folder, target="label").load()
        >>> data.device_names, data.samples, data.classes
        (('north', 'south'), 16, 2)
    """

    path: Path
    target: str | tuple[str, ...]
    inputs: tuple[str, ...] = ()
    device: str | None = None
    targets: Targets | None = None
    test: float = 0.2
    test_path: Path | None = None
    scale: bool = True
    pooled: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        checks.number("test", self.test, above=0, below=1)
        _check_choice(self.targets)
        # Lists become tuples, so that equal sources have equal hashes.
        object.__setattr__(self, "inputs", _names(self.inputs))
        if not isinstance(self.target, str):
            object.__setattr__(self, "target", tuple(self.target))

    @property
    def brings_devices(self) -> bool:
        """True if the files say which device holds which samples."""
        if self.pooled:
            return False
        return self.device is not None or self._folder.is_dir()

    @property
    def _folder(self) -> Path:
        return Path(self.path).expanduser()

    def load(self) -> Data:
        files = files_in(self._folder)
        parts = [Part(str(file), read_table(file)) for file in files]
        names = None
        if self.brings_devices and self.device is None:
            names = [stem(file) for file in files]
            _check_names(names)
        test: list[Part] | float = self.test
        if self.test_path is not None:
            test = []
            for file in files_in(Path(self.test_path).expanduser()):
                test.append(Part(str(file), read_table(file)))
        device = self.device
        if self.pooled:
            device = None
        reader = _Reader(self.target, self.inputs, self.device, self.targets, self.scale, self.seed)
        return reader.read(parts, test, names, device, stem(self._folder))


@checked
def from_table(
    train: Any,
    test: Any = 0.2,
    *,
    target: str | Sequence[str],
    inputs: str | Sequence[str] = (),
    device: str | None = None,
    targets: Targets | None = None,
    scale: bool = True,
    seed: int = 0,
    name: str = "table",
) -> Data:
    """Make data from data frames of pandas, polars or pyarrow.

    Args:
        train: A data frame; or several by name, one per device.
        test: Share of each device's rows to test on, drawn at random; or a data frame.
        target: Column of the targets; several columns are the values of one target.
        inputs: Columns of the inputs, which hold numbers. Default: all others.
        device: Column with the name of the device that holds the sample.
        targets: "labels" or "values". Default: text, bools and whole numbers are labels, other
            numbers are values of a regression.
        scale: Scale every input to mean 0 and variance 1 over the training samples.
        seed: Seed of the draw of the test rows.
        name: Name of the data, for tables.

    Returns:
        The data. If they say which device holds a sample, a study needs no split.

    Raises:
        InputError: If a column is missing, or a value is not accepted.
        DataError: If a column has missing values, or values that cannot be used.

    Example:
        >>> import pandas
        >>> frame = pandas.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "kind": ["x", "y", "x", "y"]})
        >>> from_table(frame, frame, target="kind").labels
        ('x', 'y')
    """
    _check_choice(targets)
    names = None
    if isinstance(train, Mapping):
        names = [str(key) for key in train]
        parts = [_part(str(key), frame) for key, frame in train.items()]
        if not parts:
            raise InputError("train", {}, "at least one data frame")
    else:
        parts = [_part("train", train)]
    test_rows: list[Part] | float
    if isinstance(test, int | float):
        checks.number("test", test, above=0, below=1)
        test_rows = float(test)
    else:
        test_rows = [_part("test", test)]
    reader = _Reader(target, _names(inputs), device, targets, scale, seed)
    return reader.read(parts, test_rows, names, device, name)


def _names(columns: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(columns, str):
        return (columns,)
    return tuple(columns)


def _check_choice(targets: str | None) -> None:
    if targets is not None:
        checks.one_of("targets", targets, ("labels", "values"))


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"two files are of the device {name!r}; give one file per device")


def _part(where: str, frame: Any) -> Part:
    import pyarrow

    try:
        table = pyarrow.table(frame)
    except (TypeError, ValueError, pyarrow.ArrowException) as error:
        accepted = f"a data frame of pandas, polars or pyarrow with columns of one type ({error})"
        raise InputError(where, type(frame).__name__, accepted) from None
    if table.num_rows == 0:
        raise InputError(where, "a data frame without rows", "one with at least one row")
    return Part(where, table)


class _Reader:
    """Reads inputs and targets of tables.

    Args:
        target: As in `Table`, like the others.
        inputs: Columns of the inputs.
        device: Column of the devices, which is no input.
        targets: What the targets are.
        scale: Whether inputs are scaled.
        seed: Seed of the draw of the test rows.
    """

    def __init__(
        self,
        target: str | Sequence[str],
        inputs: tuple[str, ...],
        device: str | None,
        targets: Targets | None,
        scale: bool,
        seed: int,
    ) -> None:
        self._target = list(_names(target))
        self._inputs = inputs
        self._device = device
        self._targets = targets
        self._scale = scale
        self._seed = seed
        if not self._target:
            raise InputError("target", target, "the name of a column, or several")

    def read(
        self,
        train: list[Part],
        test: list[Part] | float,
        names: list[str] | None,
        device: str | None,
        name: str,
    ) -> Data:
        """Return the data.

        Args:
            train: The tables to train on.
            test: The tables to test on, or a share of the rows.
            names: Name of the device of each table to train on, if there is one.
            device: Column of the devices, if they are kept apart by it.
            name: Name of the data.
        """
        parts = train
        if isinstance(test, list):
            parts = [*train, *test]
        held = _held(train, names, device)
        x = self._samples(parts)
        y, labels = self._read_targets(parts)
        in_test = np.zeros(len(x), dtype=bool)
        share = _TEST_SHARE if isinstance(test, list) else test
        if isinstance(test, list):
            in_test[sum(part.table.num_rows for part in train) :] = True
        else:
            in_test = _drawn(held, len(x), test, self._seed)
        mean = np.zeros(x.shape[1])
        spread = np.ones(x.shape[1])
        if self._scale:
            mean, spread = self._scale_of(x[~in_test])
            x = ((x.astype(np.float64) - mean) / spread).astype(np.float32)
        data = checked_arrays(x[~in_test], y[~in_test], x[in_test], y[in_test], name)
        if labels:
            data = replace(data, classes=len(labels), labels=labels)
            warn_of_unseen(data)
        if held is not None:
            data = with_devices(data, held[~in_test[: len(held)]])
        names_of_inputs = tuple(self._names)
        columns = (names_of_inputs, tuple(mean.tolist()), tuple(spread.tolist()))
        return replace(data, table=TableFormat(*columns, tuple(self._target), labels, share))

    def _samples(self, parts: list[Part]) -> NDArray[np.float32]:
        for name in self._target:
            parts[0].check("target", name)
        if self._device is not None:
            parts[0].check("device", self._device)
        names = list(self._inputs)
        if not names:
            # Without the column that has no name: pandas writes its index so.
            taken = {*self._target, self._device, ""}
            names = [name for name in parts[0].table.column_names if name not in taken]
        for name in names:
            if name in self._target:
                raise InputError("inputs", name, "columns other than the target")
        if not names:
            raise InputError("inputs", [], f"a column beside the target in {parts[0].where}")
        self._names = names
        return table_columns.inputs_of(parts, names)

    def _read_targets(self, parts: list[Part]) -> tuple[NDArray[Any], tuple[str, ...]]:
        """Return the targets, and the names of the classes if they are labels."""
        if len(self._target) > 1:
            if self._targets == "labels":
                raise InputError("targets", "labels", "one column of labels")
            return table_columns.values_of(parts, self._target), ()
        (name,) = self._target
        if table_columns.has_labels(parts, name, self._targets):
            return table_columns.number_labels(table_columns.labels_of(parts, name), name)
        return table_columns.values_of(parts, [name]), ()

    def _scale_of(self, x: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the mean and the spread of the inputs in training."""
        training = x.astype(np.float64)
        if not len(training):
            return np.zeros(x.shape[1]), np.ones(x.shape[1])
        spread = training.std(axis=0)
        constant = training.max(axis=0) == training.min(axis=0)
        if constant.any():
            names = listed(repr(self._names[i]) for i in np.flatnonzero(constant))
            warn(
                f"all training rows have the same value in {names}: the model learns nothing from "
                "such a column"
            )
        spread[constant] = 1
        return training.mean(axis=0), spread


def _held(
    parts: list[Part], names: list[str] | None, device: str | None
) -> NDArray[np.str_] | None:
    """Return the name of the device of each row, if rows have devices."""
    if device is not None:
        return np.concatenate([part.words("device", device) for part in parts])
    if names is None:
        return None
    return np.repeat(names, [part.table.num_rows for part in parts])


def _drawn(held: NDArray[np.str_] | None, rows: int, share: float, seed: int) -> NDArray[np.bool_]:
    """Return which rows are to test on: a share of each device's, which keeps at least one."""
    groups = [np.arange(rows)]
    if held is not None:
        _, numbers, sizes = np.unique(held, return_inverse=True, return_counts=True)
        groups = np.split(np.argsort(numbers, kind="stable"), np.cumsum(sizes)[:-1])
    in_test = np.zeros(rows, dtype=bool)
    for number, group in enumerate(groups):
        order = draws.permutation(len(group), seed, "table", number)
        in_test[group[order[: int(share * len(group))]]] = True
    if not in_test.any():
        accepted = f"a larger share: no row is left to test on of {rows} rows"
        raise InputError("test", share, accepted)
    return in_test
