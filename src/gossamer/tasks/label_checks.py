"""Warnings about targets that are accepted, but look like a mistake."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from gossamer._core.warn import warn_user
from gossamer.errors import DataWarning

if TYPE_CHECKING:
    from gossamer.tasks.data import Data

_MAX_NAMED = 5  # values that a warning lists
_MAX_FLOATS = 20  # different whole numbers that look like labels and not like measurements

_REPEATS = 10  # smallest average number of samples per label


def warn_of_labels(data: Data) -> None:
    """Warn of labels that no sample has, that only test samples have, or that are floats.

    Args:
        data: The data.

    Warns:
        DataWarning: In one sentence each.
    """
    if data.classes is not None:
        _warn_of_gaps(data, data.classes)
        warn_of_unseen(data)
    elif data.y.is_floating_point() and data.y.dim() == 1:
        _warn_of_floats(data)


def warn_of_unseen(data: Data) -> None:
    """Warn of labels that test samples have and no training sample has.

    Args:
        data: The data, with labels.
    """
    assert data.classes is not None
    in_training = torch.bincount(data.y, minlength=data.classes)
    in_test = torch.bincount(data.y_test, minlength=data.classes)
    unseen = torch.nonzero((in_training == 0) & (in_test > 0)).flatten().tolist()
    if unseen:
        named = listed(_label(data, number) for number in unseen)
        warn(
            f"no training sample of {data.name} has the label {named}, which "
            f"{int(in_test[unseen].sum()):,} of the {len(data.y_test):,} test samples have: "
            "no model can learn it"
        )


def warn(sentence: str) -> None:
    """Warn of data that look like a mistake.

    Args:
        sentence: What is wrong.
    """
    warn_user(sentence, DataWarning)


def listed(values: Iterable[Any]) -> str:
    """Return some values as text, and an ellipsis if there are more.

    Args:
        values: The values.

    Example:
        >>> listed(range(9))
        '0, 1, 2, 3, 4, …'
    """
    named = list(map(str, values))
    if len(named) > _MAX_NAMED:
        named[_MAX_NAMED:] = ["…"]
    return ", ".join(named)


def _label(data: Data, number: int) -> str:
    if data.labels:
        return repr(data.labels[number])
    return str(number)


def _warn_of_gaps(data: Data, classes: int) -> None:
    counts = torch.bincount(torch.cat([data.y, data.y_test]), minlength=classes)
    missing = torch.nonzero(counts == 0).flatten().tolist()
    if missing:
        warn(
            f"no sample of {data.name} has the label {listed(missing)}: labels count from 0 to "
            f"{classes - 1}, and the model has an output for each; number them without gaps"
        )


def _warn_of_floats(data: Data) -> None:
    if looks_like_labels(data.y):
        warn(
            f"the targets of {data.name} are floating-point numbers, so this is a regression, but "
            f"all are whole numbers ({listed(data.y.unique().int().tolist())}): give whole "
            "numbers, such as y.astype(int), if they are labels"
        )


def looks_like_labels(y: torch.Tensor) -> bool:
    """True if floating-point numbers are a few different whole numbers from 0, again and again.

    Two values are not enough: 0.0 and 1.0 are targets of the binary cross-entropy.

    Args:
        y: The targets [samples].
    """
    if not bool(((y >= 0) & (y < _MAX_FLOATS) & (y == y.floor())).all()):
        return False
    different = len(y.unique())
    return 2 < different <= len(y) // _REPEATS
