"""Arrays that are accepted as data."""

from __future__ import annotations

import numpy as np

GOOD = {
    "x": np.zeros((6, 4)),
    "y": np.array([0, 1, 2, 0, 1, 2]),
    "x_test": np.ones((2, 4)),
    "y_test": np.array([0, 2]),
}
