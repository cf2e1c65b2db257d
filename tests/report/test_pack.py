"""Numbers are packed to the last bit."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gossamer.report import pack

COLUMNS = st.fixed_dictionaries(
    {
        "round": arrays.arrays(np.int64, 6),
        "loss": arrays.arrays(np.float64, 6),
        "listed": arrays.arrays(
            np.float64, (6, 5), elements=st.sampled_from([0.0, -0.0, 0.1, np.nan, np.inf])
        ),
        "short": arrays.arrays(np.float64, (6, 3), elements=st.floats(width=32)),
    }
)


@given(COLUMNS)
@settings(max_examples=25)
def test_packing_is_exact(table: dict[str, Any]) -> None:
    described, text = pack.table(table)
    content = zlib.decompress(base64.b64decode(text))
    offset = 0

    def take(kind: str, count: int) -> Any:
        nonlocal offset
        size = np.dtype(kind).itemsize
        planes = np.frombuffer(content[offset : offset + size * count], np.uint8).reshape(
            size, count
        )
        offset += size * count
        return np.ascontiguousarray(planes.T).reshape(-1).view(kind)

    for column, (name, values) in zip(described, table.items(), strict=True):
        count = values.size
        got = take(f"<{column['type']}", column.get("listed", count))
        if "listed" in column:
            got = got[take("<u2", count)]
        got = got.reshape(values.T.shape).T.astype(values.dtype)
        assert column["name"] == name
        np.testing.assert_array_equal(
            got.view(np.int64) * (got == got), values.view(np.int64) * (values == values)
        )
    assert offset == len(content)
