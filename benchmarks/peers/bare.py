"""Adapter of the yardstick (../yardstick.py): the same task in plain torch."""

import runpy
from pathlib import Path

THREADS = (1, 2)
NOTES = "the task as it is, in plain torch: new links each round, Metropolis weights"


def run(x, y, devices, tick):
    import numpy as np
    import torch

    yardstick = runpy.run_path(str(Path(__file__).parent.parent / "yardstick.py"))["yardstick"]
    ones = np.ones((len(x), 1), np.float32)
    step = yardstick(torch.from_numpy(np.hstack([x, ones])), torch.from_numpy(y), devices)
    while True:
        step()
        tick(devices)
