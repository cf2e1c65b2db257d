"""How the tables of one device are read: as those of all devices, and while they grow.

The numbers of labels and the scale of inputs are those of all devices, which one device's table
does not tell. They are written down when the tables of all devices are read.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pydantic
from numpy.typing import NDArray

from gossamer._core.files import os_errors
from gossamer.errors import DataError
from gossamer.tasks import table_columns
from gossamer.tasks.data import Data, checked_arrays
from gossamer.tasks.label_checks import listed
from gossamer.tasks.table_columns import Part
from gossamer.tasks.table_files import read_table

_LARGEST = 1 << 26  # bytes of the file
_MIN_ROWS = 2  # one to train on, one to test on

_Finite = Annotated[float, pydantic.Field(allow_inf_nan=False)]
_Positive = Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class TableFormat:
    """The columns of a table, and how they become samples.

    Args:
        inputs: Columns of the inputs.
        mean: What is subtracted from each input.
        spread: What each input is divided by, after that.
        target: Columns of the targets.
        labels: Names of the classes, in the order of their numbers; empty if the targets are
            values.
        test: Share of the rows to test on: of 0.2, every fifth row, so that a row that is appended
            later does not change what the others are for.
    """

    inputs: tuple[str, ...]
    mean: tuple[_Finite, ...]
    spread: tuple[_Positive, ...]
    target: tuple[str, ...]
    labels: tuple[str, ...] = ()
    test: Annotated[float, pydantic.Field(gt=0, lt=1)] = 0.2

    @property
    def period(self) -> int:
        """Every how many rows one is to test on."""
        return max(2, round(1 / self.test))

    def read(self, path: Path) -> Data:
        """Read the table of one device.

        Args:
            path: A file that ends as `table_files.ENDINGS`. A last line of a CSV file without its
                end is left out, since it is being written.

        Raises:
            InputError: If a column is missing.
            DataError: If the file cannot be read, a value cannot be used, or there are too few
                rows.
        """
        part = Part(str(path), read_table(path, whole_lines=True))
        x = table_columns.inputs_of([part], self.inputs)
        x = ((x - np.array(self.mean)) / np.array(self.spread)).astype(np.float32)
        y = self._targets(part)
        in_test = np.arange(len(x)) % self.period == min(self.period, len(x)) - 1
        if len(x) < _MIN_ROWS:
            raise DataError(f"{path} has {len(x)} rows; at least {_MIN_ROWS} are needed")
        return checked_arrays(x[~in_test], y[~in_test], x[in_test], y[in_test], path.stem)

    def write(self) -> bytes:
        """Return the content of a file that `read_format` reads."""
        return (json.dumps(dataclasses.asdict(self), indent=1) + "\n").encode()

    def _targets(self, part: Part) -> NDArray[Any]:
        for name in self.target:
            part.check("target", name)
        if not self.labels:
            return table_columns.values_of([part], self.target)
        (name,) = self.target
        numbers = {label: number for number, label in enumerate(self.labels)}
        words = [str(label) for label in part.labels(name).tolist()]
        unknown = np.array([word not in numbers for word in words])
        known = listed(map(repr, self.labels))
        part.refuse_rows(name, unknown, f"has a label that is none of {known},")
        return np.array([numbers[word] for word in words], dtype=np.int64)


def read_format(path: Path) -> TableFormat:
    """Read how tables are to be read.

    Args:
        path: The file that was written from `TableFormat.write`.

    Raises:
        DataError: If it cannot be read.
    """
    with os_errors("read", path), path.open("rb") as file:
        data = file.read(_LARGEST)
    try:
        found = pydantic.TypeAdapter(TableFormat).validate_json(data)
    except ValueError:
        raise DataError(f"{path} does not say how a table is read: copy it again") from None
    if not len(found.inputs) == len(found.mean) == len(found.spread):
        raise DataError(f"{path} does not say how a table is read: copy it again")
    return found
