"""Data from `datasets.Dataset`: columns of text, numbers or images, and their targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer._core import checks
from gossamer._core.arguments import checked
from gossamer.errors import InputError, nearest
from gossamer.tasks.data import IGNORED, Data, checked_arrays, from_arrays, with_devices
from gossamer.tasks.hf import packages
from gossamer.tasks.label_checks import warn_of_unseen

_SPLITS = ("train", "test")
_WHITE = 255  # largest value of a pixel
_FIELDS = {"x": "inputs", "x_test": "inputs", "y": "target", "y_test": "target"}


@checked
def from_hf(
    train: Any,
    test: Any = None,
    *,
    inputs: str | Sequence[str] = "text",
    target: str | None = "label",
    tokenizer: Any = None,
    max_length: int = 128,
    device: str | None = None,
    name: str = "hugging-face",
) -> Data:
    """Make data from data sets of Hugging Face. They are read once; formats do not matter.

    Text becomes token ids [samples, max_length], padded and cut on the right. Columns of numbers,
    sequences and arrays stay as they are; images become float32 [channels, height, width] from 0
    to 1. Several columns of numbers become the features of one vector, two of text become pairs.

    Args:
        train: A `datasets.Dataset` to train on; or a `datasets.DatasetDict`, whose splits "train"
            and "test" are taken.
        test: The data set to test on; of a `DatasetDict`, the names of its two splits.
        inputs: The column of the inputs, or several.
        target: The column of the targets: class labels, numbers, or sequences of them. None: the
            next token of the text; −100 marks padding and the end, which do not count.
        tokenizer: A tokeniser of transformers, for text.
        max_length: Tokens per sample.
        device: Column with the name of the device that holds a sample to train on, such as an
            author. A study then needs no split.
        name: Name of the data, for tables.

    Returns:
        The data.

    Raises:
        InputError: If a column or a split is missing, has missing values, or cannot be used.
        MissingExtra: If the extra gossamer[hf] is not installed.

    Example:
        >>> import datasets                                            # doctest: +SKIP
        >>> films = datasets.load_from_disk("films")                   # doctest: +SKIP
        >>> gs.from_hf(films, tokenizer=tokenizer, max_length=64)      # doctest: +SKIP
    """
    packages.load("datasets")
    checks.whole("max_length", max_length, 1)
    parts = _parts(train, test)
    reader = _Reader(_names(inputs), target, tokenizer, max_length)
    x, y = reader.read("train", parts[0])
    x_test, y_test = reader.read("test", parts[1])
    labels = reader.labels(parts[0])
    try:
        data = _checked(x, y, x_test, y_test, name, labels)
    except InputError as error:
        field = _FIELDS.get(error.field, error.field)
        raise InputError(field, error.value, error.accepted) from None
    if device is not None:
        data = with_devices(data, _column("device", parts[0], device))
    return data


def _checked(
    x: NDArray[Any],
    y: NDArray[Any],
    x_test: NDArray[Any],
    y_test: NDArray[Any],
    name: str,
    labels: tuple[str, ...],
) -> Data:
    if not labels:
        return from_arrays(x, y, x_test, y_test, name=name)
    # The data set says how many classes there are: labels that no sample has are no mistake.
    data = replace(checked_arrays(x, y, x_test, y_test, name), classes=len(labels), labels=labels)
    warn_of_unseen(data)
    return data


def _names(inputs: str | Sequence[str]) -> list[str]:
    if isinstance(inputs, str):
        return [inputs]
    if not inputs:
        raise InputError("inputs", inputs, "the name of a column, or several")
    return list(inputs)


def _parts(train: Any, test: Any) -> tuple[Any, Any]:
    """Return the two data sets."""
    if not isinstance(train, Mapping):
        if test is None:
            raise InputError("test", None, "a data set to test on")
        _check_dataset("train", train)
        _check_dataset("test", test)
        return train, test
    splits = _SPLITS if test is None else test
    if isinstance(splits, str) or len(splits) != 2:
        raise InputError("test", test, "the names of two splits, such as ('train', 'test')")
    for split in splits:
        if split not in train:
            accepted = f"one of the splits {', '.join(map(repr, train))}"
            raise InputError("split", split, accepted)
    return train[splits[0]], train[splits[1]]


def _check_dataset(field: str, dataset: Any) -> None:
    if not isinstance(dataset, packages.load("datasets").Dataset):
        accepted = "a datasets.Dataset; a stream (IterableDataset) is not held in memory"
        raise InputError(field, type(dataset).__name__, accepted)


class _Reader:
    """Reads inputs and targets from a data set."""

    def __init__(
        self, inputs: list[str], target: str | None, tokenizer: Any, max_length: int
    ) -> None:
        self._inputs = inputs
        self._target = target
        self._tokenizer = tokenizer
        self._max_length = max_length

    def read(self, split: str, dataset: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the inputs and the targets of all samples."""
        if not len(dataset):
            raise InputError(split, "a data set without samples", "one with at least one sample")
        text = [_is_text(dataset, name) for name in self._inputs]
        if all(text):
            tokens, seen = self._tokens(dataset)
            if self._target is None:
                return tokens, _next_tokens(tokens, seen)
            return tokens, self._targets(dataset)
        if any(text):
            accepted = "columns of text alone, or of numbers alone"
            raise InputError("inputs", self._inputs, accepted)
        if self._target is None:
            accepted = "the name of a column; next tokens are targets of text only"
            raise InputError("target", None, accepted)
        return self._numbers(dataset), self._targets(dataset)

    def labels(self, dataset: Any) -> tuple[str, ...]:
        """Return the names of the classes, if the target is a `datasets.ClassLabel`."""
        if self._target is None:
            return ()
        feature = dataset.features[self._target]
        if isinstance(feature, packages.load("datasets").ClassLabel):
            return tuple(feature.names)
        return ()

    def _tokens(self, dataset: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return token ids, and which of them are not padding: [samples, length] both."""
        if self._tokenizer is None:
            raise InputError("tokenizer", None, f"a tokeniser for the text in {self._inputs}")
        if self._tokenizer.pad_token_id is None:
            accepted = "one with a pad token: set tokenizer.pad_token first"
            raise InputError("tokenizer", type(self._tokenizer).__name__, accepted)
        if len(self._inputs) > 2:
            raise InputError("inputs", self._inputs, "one column of text, or two for pairs")
        texts = []
        for name in self._inputs:
            texts.append(_column("inputs", dataset, name).tolist())
        encoded = self._tokenizer(
            *texts,
            padding="max_length",
            truncation=True,
            max_length=self._max_length,
            padding_side="right",
            return_attention_mask=True,
        )
        tokens = np.asarray(encoded["input_ids"], dtype=np.int64)
        return tokens, np.asarray(encoded["attention_mask"], dtype=bool)

    def _numbers(self, dataset: Any) -> NDArray[Any]:
        columns = []
        for name in self._inputs:
            columns.append(_column("inputs", dataset, name))
        if len(columns) == 1 and columns[0].ndim > 1:
            return columns[0]
        for name, column in zip(self._inputs, columns, strict=True):
            if column.ndim != 1:
                accepted = "one column of sequences, or several columns of single numbers"
                raise InputError("inputs", name, accepted)
        return np.stack(columns, axis=1)

    def _targets(self, dataset: Any) -> NDArray[Any]:
        assert self._target is not None
        values = _column("target", dataset, self._target)
        if values.dtype.kind == "U":
            accepted = (
                "numbers or class labels: "
                f"dataset.class_encode_column({self._target!r}) numbers the words"
            )
            raise InputError("target", f"{self._target!r}, a column of text", accepted)
        return values


def _is_text(dataset: Any, name: str) -> bool:
    _check_column("inputs", dataset, name)
    return getattr(dataset.features[name], "dtype", None) in ("string", "large_string")


def _check_column(field: str, dataset: Any, name: str) -> None:
    names = dataset.column_names
    if name not in names:
        accepted = f"one of the columns {', '.join(map(repr, names))}{nearest(name, names)}"
        raise InputError(field, name, accepted)


def _column(field: str, dataset: Any, name: str) -> NDArray[Any]:
    """Return a column as an array, whatever format the data set has."""
    _check_column(field, dataset, name)
    missing = dataset.with_format("arrow", columns=[name])[:][name].null_count
    if missing:
        accepted = "a column without missing values: dataset.filter removes such samples"
        raise InputError(field, f"{name!r} with {missing} missing values", accepted)
    values = dataset.with_format("numpy", columns=[name])[:][name]
    if isinstance(dataset.features[name], packages.load("datasets").Image):
        return _images(field, name, values)
    array = _one_array(field, name, values)
    if array.dtype.kind not in "biufU":
        accepted = "a column of numbers, of text, or of sequences of numbers of one length"
        raise InputError(field, f"{name!r} ({dataset.features[name]})", accepted)
    return array


def _one_array(field: str, name: str, values: Any) -> NDArray[Any]:
    """Return the values as one array; those of unequal lengths cannot be one."""
    try:
        array = np.asarray(values)
        if array.dtype.kind == "O":
            array = np.stack([np.asarray(value) for value in array])
    except ValueError:
        accepted = "sequences of one length: pad or cut them first, by dataset.map"
        raise InputError(field, f"{name!r}, sequences of several lengths", accepted) from None
    return array


def _images(field: str, name: str, values: Any) -> NDArray[np.float32]:
    """Return images [samples, channels, height, width] from 0 to 1."""
    images = _one_array(field, name, values)
    if images.ndim == 3:
        images = images[..., None]
    return (np.moveaxis(images, -1, 1) / _WHITE).astype(np.float32)


def _next_tokens(tokens: NDArray[np.int64], seen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the token that follows each, −100 where none does."""
    following = np.full_like(tokens, IGNORED)
    following[:, :-1] = np.where(seen[:, 1:], tokens[:, 1:], IGNORED)
    return following
