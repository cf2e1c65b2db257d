"""Training and test samples as tensors, and the sources that they come from.

A source is a frozen dataclass; `load()` reads it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from gossamer._core.arguments import checked, conversion
from gossamer.errors import InputError
from gossamer.tasks.label_checks import warn_of_labels

if TYPE_CHECKING:
    from gossamer.tasks.table_format import TableFormat

MAX_CLASSES = 100_000
"""Most classes. A larger label is taken for a mistake, such as an identifier: the model gets an
output for every class."""

MAX_TOKENS = 1 << 24
"""Most classes of a position, such as the words of a vocabulary."""

IGNORED = -100
"""Target of a position that does not count, as in torch."""

_ARRAYS = ("x", "y", "x_test", "y_test")
_WORDS = "an array of numbers: numpy.unique(y, return_inverse=True)[1] numbers the words from 0"


@checked
@dataclass(frozen=True, eq=False)
class Data:
    """Samples to train on and to test on.

    The type of y says what the targets are:

    | y | targets | default loss |
    |---|---|---|
    | int64 [samples] | labels | cross-entropy |
    | int64 [samples, …] | a class per position: tokens, masks | cross-entropy |
    | bool [samples, …] | yes or no per output: multi-label | binary cross-entropy |
    | float32 [samples, …] | values: regression | half the squared error |

    Args:
        x: Training samples [samples, …features]: float32, or int64 for tokens.
        y: Their targets.
        x_test: Test samples, like x.
        y_test: Their targets, like y.
        name: Name of the data, for tables.
        classes: Number of classes of labels, which are from 0 to classes − 1; None for other
            targets.
        labels: Names of the classes, if they have any.
        owner: Number of the device that holds each training sample, if the data say so: a study's
            split rule then does not apply.
        device_names: Names of these devices, in the order of their numbers.
        table: How rows of a table became these samples, if they come from one.

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
    labels: tuple[str, ...] = ()
    owner: Tensor | None = None
    device_names: tuple[str, ...] = ()
    table: TableFormat | None = None

    @property
    def samples(self) -> int:
        """Number of training samples."""
        return len(self.x)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.x.shape[1:])

    @property
    def targets(self) -> str:
        """What the targets are: "labels", "tokens", "multi-label" or "values"."""
        if self.classes is not None:
            return "labels"
        if self.y.dtype == torch.bool:
            return "multi-label"
        if self.y.is_floating_point():
            return "values"
        return "tokens"

    def __repr__(self) -> str:
        """Return one line with a checksum; in the spec of a run it identifies the samples."""
        checksum = 0
        parts = [self.x, self.y, self.x_test, self.y_test]
        if self.owner is not None:
            parts.append(self.owner)
        for part in parts:
            checksum = zlib.crc32(part.contiguous().numpy().data, checksum)
        return (
            f"Data({self.name!r}, {self.samples} samples of shape {self.shape}, "
            f"classes={self.classes}, crc32={checksum:08x})"
        )


@runtime_checkable
class Source(Protocol):
    """Anything that data can be loaded from."""

    def load(self) -> Data:
        """Return the data."""


@conversion(Source)
def _data_of(field: str, value: Any) -> Any:
    """Make data from a tuple of four arrays; name the function for what is not complete."""
    accepted = "gs.from_arrays(x, y, x_test, y_test), or a tuple of these four"
    if isinstance(value, tuple | list):
        if len(value) != len(_ARRAYS) or any(isinstance(part, str) for part in value):
            raise InputError(field, f"a {type(value).__name__} of {len(value)}", accepted)
        return from_arrays(*value)
    if isinstance(value, torch.utils.data.Dataset):
        accepted = "gs.from_dataset(train, test)"
        raise InputError(field, type(value).__name__, accepted)
    if hasattr(value, "shape"):
        raise InputError(field, f"an array of shape {list(value.shape)}", accepted)
    return value


@checked
def from_arrays(
    x: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    x_test: ArrayLike | Tensor,
    y_test: ArrayLike | Tensor,
    name: str = "arrays",
    devices: Sequence[Any] | NDArray[Any] | None = None,
) -> Data:
    """Make data from NumPy arrays or tensors. They are checked and copied.

    Args:
        x: Training samples [samples, …features]. Whole numbers stay whole numbers (int64), such as
            tokens for an embedding; all others become float32.
        y: Their targets. Whole numbers [samples] are labels from 0; whole numbers [samples, …] are
            a class per position, −100 where a position does not count; bools [samples, …], or
            floating-point numbers that are all 0 or 1, are yes or no per output; other
            floating-point numbers are values of a regression.
        x_test: Test samples, like x.
        y_test: Their targets, like y.
        name: Name of the data, for tables.
        devices: Name or number of the device that holds each training sample, if that is known. A
            study's split rule then does not apply.

    Returns:
        The data.

    Raises:
        InputError: If an array is empty, has values that are not finite, or does not fit another.

    Warns:
        DataWarning: If the labels skip a number, only test samples have a label, or labels are
            given as floating-point numbers.

    Example:
        >>> from_arrays(np.eye(3), [0, 1, 2], np.eye(3), [0, 1, 2]).classes
        3
    """
    data = checked_arrays(x, y, x_test, y_test, name)
    warn_of_labels(data)
    if devices is not None:
        data = with_devices(data, devices)
    return data


def with_devices(data: Data, devices: Sequence[Any] | NDArray[Any]) -> Data:
    """Return data whose training samples belong to devices.

    Args:
        data: The data.
        devices: Name or number of the device of each training sample. Devices are numbered in the
            order of their names; numbers within names count as numbers.

    Raises:
        InputError: If there is not one device per sample, or a name is empty.

    Example:
        >>> data = from_arrays(np.eye(3), [0, 1, 1], np.eye(3), [0, 1, 1])
        >>> with_devices(data, ["van 10", "van 9", "van 9"]).owner.tolist()
        [1, 0, 0]
    """
    if getattr(devices, "ndim", 1) != 1:
        raise InputError("devices", devices, f"one per training sample, {data.samples}")
    held = [str(device) for device in devices]
    if len(held) != data.samples:
        accepted = f"one per training sample, {data.samples}"
        raise InputError("devices", f"{len(held)} devices", accepted)
    if "" in held:
        raise InputError("devices", "", "a name for every device")
    names = sorted(set(held), key=_natural)
    numbers = {name: number for number, name in enumerate(names)}
    owner = torch.tensor([numbers[name] for name in held])
    return replace(data, owner=owner, device_names=tuple(names))


def _natural(name: str) -> tuple[list[Any], str]:
    """Return a key that sorts "van 9" before "van 10"."""
    parts: list[Any] = re.split(r"([0-9]+)", name)
    parts[1::2] = map(int, parts[1::2])
    return parts, name


def checked_arrays(
    x: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    x_test: ArrayLike | Tensor,
    y_test: ArrayLike | Tensor,
    name: str = "arrays",
) -> Data:
    """Do the same without a warning, for the samples of one device.

    Args:
        x: As in `from_arrays`, like the others.
        y: Their targets.
        x_test: Test samples.
        y_test: Their targets.
        name: Name of the data.
    """
    samples, test_samples = _alike(_samples("x", x), _samples("x_test", x_test))
    targets = _targets("y", y)
    test_targets = _targets("y_test", y_test)
    if _is_binary(targets) and _is_binary(test_targets):
        targets = targets.bool()
        test_targets = test_targets.bool()
    _check_lengths("x", samples, "y", targets)
    _check_lengths("x_test", test_samples, "y_test", test_targets)
    _check_alike("x", samples, "x_test", test_samples)
    _check_alike("y", targets, "y_test", test_targets)
    classes = None
    if targets.dtype == torch.int64 and targets.dim() == 1:
        classes = int(max(targets.max(), test_targets.max())) + 1
    return Data(samples, targets, test_samples, test_targets, name=name, classes=classes)


def _alike(x: Tensor, x_test: Tensor) -> tuple[Tensor, Tensor]:
    """Return samples of one type: float32, unless all are whole numbers."""
    if x.dtype == x_test.dtype:
        return x, x_test
    return x.float(), x_test.float()


def _check_lengths(inputs: str, x: Tensor, targets: str, y: Tensor) -> None:
    if len(x) != len(y):
        accepted = f"as many as {inputs} has samples, {len(x)}"
        raise InputError(targets, f"{len(y)} targets", accepted)


def _check_alike(train: str, first: Tensor, test: str, second: Tensor) -> None:
    if first.shape[1:] != second.shape[1:]:
        accepted = f"the shape that {train} has, {list(first.shape[1:])}, for each sample"
        raise InputError(test, list(second.shape[1:]), accepted)
    if first.dtype != second.dtype:
        raise InputError(test, str(second.dtype), f"the same kind of targets as {train}")


def _is_binary(y: Tensor) -> bool:
    """True if targets are yes or no per output."""
    if y.dtype == torch.bool:
        return True
    return y.dim() > 1 and y.is_floating_point() and bool(((y == 0) | (y == 1)).all())


@checked
def from_dataset(
    train: Iterable[Any] | Mapping[str, Iterable[Any]],
    test: Iterable[Any],
    name: str = "dataset",
) -> Data:
    """Make data from torch datasets, or any sequences, of pairs (x, y). They are read once.

    Args:
        train: Training samples; or several datasets by the name of the device that holds them. A
            study then needs no split.
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
    x_test, y_test = _stack_pairs("test", test)
    if not isinstance(train, Mapping):
        x, y = _stack_pairs("train", train)
        return from_arrays(x, y, x_test, y_test, name=name)
    pairs: list[Any] = []
    held: list[str] = []
    for device, dataset in train.items():
        own = _pairs(dataset)
        pairs += own
        held += [device] * len(own)
    x, y = _stack_pairs("train", pairs)
    return from_arrays(x, y, x_test, y_test, name=name, devices=held)


def _array(
    field: str, value: ArrayLike | Tensor, accepted: str = "an array of numbers"
) -> NDArray[Any]:
    if isinstance(value, Tensor):
        if value.layout is not torch.strided or value.is_meta:
            raise InputError(
                field, f"a tensor of layout {value.layout}", "a dense tensor on a device"
            )
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() else value).numpy()
    try:
        array = np.asarray(value)
    except ValueError as error:  # lists of unequal lengths
        raise InputError(field, "a ragged list", "an array of numbers") from error
    if array.dtype.kind not in "buif":
        raise InputError(field, _kind(array), accepted)
    if array.ndim == 0 or array.size == 0:
        raise InputError(field, list(array.shape), "an array with at least one sample")
    return array


def _kind(array: NDArray[Any]) -> str:
    """Return what an array holds that is not of numbers."""
    if array.dtype.kind in "US":
        return f"text such as {array.flat[0]!s}"
    return str(array.dtype)


def _samples(field: str, value: ArrayLike | Tensor) -> Tensor:
    array = _array(field, value)
    if array.ndim < 2:
        raise InputError(field, list(array.shape), "an array [samples, …features]")
    if array.dtype.kind in "iu":
        return _to_int64(field, array)
    return _to_float32(field, array)


def _targets(field: str, value: ArrayLike | Tensor) -> Tensor:
    array = _array(field, value, _WORDS)
    if array.dtype.kind == "f":
        return _to_float32(field, array)
    if array.ndim > 1:
        if array.dtype.kind == "b":
            return torch.from_numpy(array.copy())
        if array.shape[1:] == (1,):  # a column of labels, not sequences of one token
            raise InputError(field, list(array.shape), "labels as an array [samples]")
        _check_range(field, array[array != IGNORED], "classes", MAX_TOKENS)
    else:
        _check_range(field, array, "labels", MAX_CLASSES)
    return torch.from_numpy(array.astype(np.int64))


def _check_range(field: str, array: NDArray[Any], noun: str, most: int) -> None:
    if not array.size:
        return
    for label in (array.min(), array.max()):
        if not 0 <= label < most:
            accepted = f"{noun} from 0 to C-1, C at most {most}"
            if noun == "classes":
                accepted += f", and {IGNORED} where a position does not count"
            raise InputError(field, int(label), accepted)


def _to_int64(field: str, array: NDArray[Any]) -> Tensor:
    largest = np.iinfo(np.int64).max
    if array.max() > largest:
        raise InputError(field, int(array.max()), f"whole numbers of at most {largest}")
    return torch.from_numpy(np.array(array, dtype=np.int64, order="C"))


def _to_float32(field: str, array: NDArray[Any]) -> Tensor:
    with np.errstate(over="ignore"):  # too large for float32 becomes infinite, and is refused below
        copy = np.array(array, dtype=np.float32, order="C")
    finite = np.isfinite(copy).reshape(len(copy), -1).all(axis=1)
    if not finite.all():
        value = f"NaN or infinity in sample {int(np.argmin(finite))}"
        raise InputError(field, value, "finite numbers within float32")
    return torch.from_numpy(copy)


def _pairs(dataset: Any) -> list[Any]:
    """Return the pairs of a dataset."""
    if not hasattr(dataset, "__len__") and not hasattr(dataset, "__iter__"):
        raise InputError("train", f"a {type(dataset).__name__}", "a dataset for each device")
    if hasattr(dataset, "__len__"):  # a map-style dataset need not raise IndexError at its end
        return [dataset[i] for i in range(len(dataset))]
    return list(dataset)


def _stack_pairs(field: str, dataset: Any) -> tuple[Tensor, Tensor]:
    xs = []
    ys = []
    try:
        for x, y in _pairs(dataset):
            xs.append(x if isinstance(x, Tensor) else torch.as_tensor(np.asarray(x)))
            ys.append(torch.as_tensor(y))
    except (TypeError, ValueError, LookupError, RuntimeError) as error:
        accepted = f"pairs of a sample and its target, both of numbers ({error})"
        raise InputError(field, f"a {type(dataset).__name__}", accepted) from error
    try:
        return torch.stack(xs), torch.stack(ys)
    except RuntimeError as error:  # no samples, or unequal shapes
        value = f"a dataset of {len(xs)} samples"
        raise InputError(field, value, "samples of one shape, at least one") from error
