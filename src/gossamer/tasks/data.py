"""Training and test samples as tensors, and the sources that they come from.

A source is a frozen dataclass; `load()` reads it.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from gossamer import draws
from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.tasks.splits import own_split

MAX_CLASSES = 100_000
"""Most classes. A larger label is taken for a mistake, such as an identifier: the model gets an
output for every class."""


@dataclass(frozen=True, eq=False)
class Data:
    """Samples to train on and to test on.

    Args:
        x: Training samples, float32 [samples, …features].
        y: Labels, int64 from 0 to classes − 1 [samples]; or regression targets, float32
            [samples, …].
        x_test: Test samples, like x.
        y_test: Their labels or targets, like y.
        name: Name of the data, for tables.
        classes: Number of classes, or None for regression.

    Example:
        >>> from gossamer import Digits
        >>> data = Digits().load()
        >>> data.samples, data.shape, data.classes
        (1437, (1, 8, 8), 10)
    """

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    name: str
    classes: int | None

    @property
    def samples(self) -> int:
        """Number of training samples."""
        return len(self.x)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.x.shape[1:])

    def __repr__(self) -> str:
        """Return one line with a checksum; in the spec of a run it identifies the samples."""
        checksum = 0
        for part in (self.x, self.y, self.x_test, self.y_test):
            checksum = zlib.crc32(part.contiguous().numpy().data, checksum)
        return (
            f"Data({self.name!r}, {self.samples} samples of shape {self.shape}, "
            f"classes={self.classes}, crc32={checksum:08x})"
        )


class Source(Protocol):
    """Anything that data can be loaded from."""

    def load(self) -> Data:
        """Return the data."""


@register("data", "validation")
@dataclass(frozen=True)
class Validation:
    """Data for choosing on: a share of the training samples replaces the test samples.

    They are no longer trained on, and the true test samples are not looked at: a choice that is
    made here can be tested there.

    Args:
        data: The source.
        share: Share of the training samples to test on.
        seed: Seed of the draw.

    Raises:
        InputError: If the share is not between 0 and 1, or the source is synthetic.

    Example:
        >>> from gossamer import Digits
        >>> data = Validation(Digits(), share=0.1).load()
        >>> data.samples, len(data.x_test)
        (1293, 144)
    """

    data: Source
    share: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        checks.number("share", self.share, above=0, below=1)
        if own_split(self.data) is not None:
            raise InputError(
                "data",
                type(self.data).__name__,
                "data that are not synthetic: those have no test samples",
            )

    def load(self) -> Data:
        whole = self.data.load()
        count = math.ceil(self.share * whole.samples)
        if count >= whole.samples:
            accepted = f"a share that leaves some of the {whole.samples} samples to train on"
            raise InputError("share", self.share, accepted)
        order = torch.from_numpy(draws.permutation(whole.samples, self.seed, "validation"))
        # Sorted, so that a split by rule deals the samples out much as it would the whole data.
        test = order[:count].sort().values
        train = order[count:].sort().values
        return Data(
            whole.x[train], whole.y[train], whole.x[test], whole.y[test], whole.name, whole.classes
        )


def from_arrays(
    x: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    x_test: ArrayLike | Tensor,
    y_test: ArrayLike | Tensor,
    name: str = "arrays",
) -> Data:
    """Make data from NumPy arrays or tensors. They are checked and copied.

    Args:
        x: Training samples [samples, …features].
        y: Whole numbers from 0 are labels [samples]; other numbers are regression targets.
        x_test: Test samples, like x.
        y_test: Their labels or targets, like y.
        name: Name of the data, for tables.

    Returns:
        The data.

    Raises:
        InputError: If an array is empty, has values that are not finite, or does not fit another.

    Example:
        >>> from_arrays(np.eye(3), [0, 1, 2], np.eye(3), [0, 1, 2]).classes
        3
    """
    tensors = {
        "x": _samples("x", x),
        "y": _targets("y", y),
        "x_test": _samples("x_test", x_test),
        "y_test": _targets("y_test", y_test),
    }
    for inputs, targets in (("x", "y"), ("x_test", "y_test")):
        if len(tensors[inputs]) != len(tensors[targets]):
            accepted = f"as many as {inputs} has samples, {len(tensors[inputs])}"
            raise InputError(targets, f"{len(tensors[targets])} targets", accepted)
    for train, test in (("x", "x_test"), ("y", "y_test")):
        if tensors[train].shape[1:] != tensors[test].shape[1:]:
            shape = list(tensors[train].shape[1:])
            accepted = f"the shape that {train} has, {shape}, for each sample"
            raise InputError(test, list(tensors[test].shape[1:]), accepted)
        if tensors[train].dtype != tensors[test].dtype:
            raise InputError(test, str(tensors[test].dtype), f"the same kind of targets as {train}")
    classes = None
    if tensors["y"].dtype == torch.int64:
        classes = int(max(tensors["y"].max(), tensors["y_test"].max())) + 1
    return Data(**tensors, name=name, classes=classes)


def from_dataset(train: Iterable[Any], test: Iterable[Any], name: str = "dataset") -> Data:
    """Make data from torch datasets, or any sequences, of pairs (x, y). They are read once.

    Args:
        train: Training samples.
        test: Test samples.
        name: Name of the data, for tables.

    Returns:
        The data.

    Raises:
        InputError: If samples have different shapes, or there are none.

    Example:
        >>> pairs = [(torch.tensor([1.0, 2.0]), 0), (torch.tensor([3.0, 4.0]), 1)]
        >>> from_dataset(pairs, pairs).samples
        2
    """
    x, y = _stack_pairs("train", train)
    x_test, y_test = _stack_pairs("test", test)
    return from_arrays(x, y, x_test, y_test, name=name)


def _array(field: str, value: ArrayLike | Tensor) -> NDArray[Any]:
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() else value).numpy()
    try:
        array = np.asarray(value)
    except ValueError as error:  # lists of unequal lengths
        raise InputError(field, "a ragged list", "an array of numbers") from error
    if array.dtype.kind not in "buif":
        raise InputError(field, str(array.dtype), "an array of numbers")
    if array.ndim == 0 or array.size == 0:
        raise InputError(field, list(array.shape), "an array with at least one sample")
    return array


def _samples(field: str, value: ArrayLike | Tensor) -> Tensor:
    array = _array(field, value)
    if array.ndim < 2:
        raise InputError(field, list(array.shape), "an array [samples, …features]")
    return _to_float32(field, array)


def _targets(field: str, value: ArrayLike | Tensor) -> Tensor:
    array = _array(field, value)
    if array.dtype.kind == "f":
        return _to_float32(field, array)
    if array.ndim != 1:
        raise InputError(field, list(array.shape), "labels as an array [samples]")
    for label in (array.min(), array.max()):
        if not 0 <= label < MAX_CLASSES:
            accepted = f"labels from 0 to C-1, C at most {MAX_CLASSES}"
            raise InputError(field, int(label), accepted)
    return torch.from_numpy(array.astype(np.int64))


def _to_float32(field: str, array: NDArray[Any]) -> Tensor:
    with np.errstate(over="ignore"):  # too large for float32 becomes infinite, and is refused below
        copy = np.array(array, dtype=np.float32, order="C")
    finite = np.isfinite(copy).reshape(len(copy), -1).all(axis=1)
    if not finite.all():
        value = f"NaN or infinity in sample {int(np.argmin(finite))}"
        raise InputError(field, value, "finite numbers within float32")
    return torch.from_numpy(copy)


def _stack_pairs(field: str, dataset: Any) -> tuple[Tensor, Tensor]:
    pairs = iter(dataset)
    if hasattr(dataset, "__len__"):  # a map-style dataset need not raise IndexError at its end
        pairs = (dataset[i] for i in range(len(dataset)))
    xs = []
    ys = []
    for x, y in pairs:
        xs.append(x if isinstance(x, Tensor) else torch.as_tensor(np.asarray(x)))
        ys.append(torch.as_tensor(y))
    try:
        return torch.stack(xs), torch.stack(ys)
    except RuntimeError as error:  # no samples, or unequal shapes
        value = f"a dataset of {len(xs)} samples"
        raise InputError(field, value, "samples of one shape, at least one") from error
