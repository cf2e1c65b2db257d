"""Validation samples: part of the training samples, for tuning."""

from __future__ import annotations

import numpy as np
import pytest
from torch import Tensor

import gossamer as gs
from gossamer.errors import InputError


def labelled(x: Tensor, y: Tensor) -> dict[bytes, int]:
    """Return the labels by the bytes of their samples."""
    return {x_i.numpy().tobytes(): int(y_i) for x_i, y_i in zip(x, y, strict=True)}


@pytest.mark.parametrize("share", [0.1, 0.25, 0.999])
def test_validation_samples_are_training_samples_that_are_not_trained_on(share: float) -> None:
    whole = gs.Digits().load()
    part = gs.Validation(gs.Digits(), share).load()
    labels = labelled(whole.x, whole.y)
    train = labelled(part.x, part.y)
    validation = labelled(part.x_test, part.y_test)
    test = labelled(whole.x_test, whole.y_test)
    assert len(labels) == whole.samples  # no image is there twice: its bytes stand for a sample
    assert train | validation == labels
    assert len(train) + len(validation) == whole.samples
    assert len(validation) == int(np.ceil(share * whole.samples))
    assert not validation.keys() & test.keys()
    again = gs.Validation(gs.Digits(), share).load()
    other = gs.Validation(gs.Digits(), share, seed=1).load()
    assert repr(again) == repr(part) != repr(other)
    assert part.classes == whole.classes


@pytest.mark.parametrize(
    ("share", "data"), [(0, "digits"), (1, "digits"), (-0.1, "digits"), (0.1, "logistic")]
)
def test_validation_refuses(share: float, data: str) -> None:
    with pytest.raises(InputError, match="share" if data == "digits" else "data"):
        gs.Validation(gs.Digits() if data == "digits" else gs.Logistic(3), share)
