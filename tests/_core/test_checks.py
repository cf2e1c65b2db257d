"""Checks of arguments: what is accepted, and the sentences of what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from gossamer._core import checks
from gossamer.errors import InputError


@pytest.mark.parametrize(
    ("check", "accepted", "refused", "sentence"),
    [
        (lambda x: checks.whole("n", x, 1), [1, np.int32(7)], [0, 1.0, True, "1", None], "1"),
        (lambda x: checks.whole("n", x, 0, 5), [0, 5], [-1, 6], "a whole number from 0 to 5"),
        (lambda x: checks.whole("n", x), [-9, 0], [0.5], "a whole number"),
        (
            lambda x: checks.positive("n", x),
            [1e-300, 3, np.float32(2), Fraction(1, 3)],
            [0, -1, math.nan, math.inf, "2", None, 1j],
            "a number above 0",
        ),
        (lambda x: checks.not_negative("n", x), [0, 0.0], [-1e-9], "a number of at least 0"),
        (lambda x: checks.probability("n", x), [0, 1, 0.5], [-0.1, 1.1], "a number from 0 to 1"),
        (
            lambda x: checks.number("n", x, least=0, below=1, noun="a share"),
            [0, 0.9],
            [1, -1],
            "a share of at least 0 and below 1",
        ),
        (
            lambda x: checks.number("n", x, above=0, most=2),
            [0.1, 2],
            [0, 2.1],
            "a number above 0 and at most 2",
        ),
        (
            lambda x: checks.one_of("n", x, ("left", "right")),
            ["left", "right"],
            ["top", None, 3, ["left"]],
            "one of 'left', 'right'",
        ),
        (
            lambda x: checks.one_of("n", x, {"left": 1}),
            ["left"],
            ["lef"],
            "one of 'left' (did you mean 'left'?)",
        ),
    ],
)
def test_checks(
    check: Callable[[Any], None], accepted: list[Any], refused: list[Any], sentence: str
) -> None:
    for value in accepted:
        check(value)
    for value in refused:
        with pytest.raises(InputError) as caught:
            check(value)
        assert str(caught.value).startswith(f"n = {value!r} is not accepted: give ")
        assert str(caught.value).endswith(sentence)
