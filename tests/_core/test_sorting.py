"""Sorting of whole numbers, against NumPy's general functions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gossamer._core.sorting import contains, distinct, stable_order

LIMITS = st.sampled_from([1, 2, 7, 2**16 - 1, 2**16, 2**16 + 1, 2**32, 2**32 + 1, 2**50])


@st.composite
def numbers(draw: st.DrawFn, limit: int) -> np.ndarray:
    # Few different numbers: equal ones must stay in order.
    some = draw(st.lists(st.integers(0, limit - 1), min_size=1, max_size=4))
    return draw(arrays(np.int64, st.integers(0, 30), elements=st.sampled_from(some)))


@given(data=st.data(), limit=LIMITS)
def test_stable_order_is_numpys_stable_argsort(data: st.DataObject, limit: int) -> None:
    x = data.draw(numbers(limit))
    assert stable_order(x, limit).tolist() == np.argsort(x, kind="stable").tolist()


@given(data=st.data(), limit=LIMITS)
def test_distinct_is_numpys_unique(data: st.DataObject, limit: int) -> None:
    x = data.draw(numbers(limit))
    assert distinct(x).tolist() == sorted(set(x.tolist()))


@given(data=st.data(), limit=LIMITS)
def test_contains_is_membership(data: st.DataObject, limit: int) -> None:
    ordered = np.sort(data.draw(numbers(limit)))
    x = data.draw(numbers(limit))
    known = set(ordered.tolist())
    expected = []
    for number in x.tolist():
        expected.append(number in known)
    assert contains(ordered, x).tolist() == expected
