"""The yardstick of ../yardstick.py: the same job with nothing in the way."""

import runpy
from pathlib import Path

THREADS = (1, 2)
NOTES = "the job as it stands, in bare torch: fresh links each round, Metropolis weights"


def run(x, y, devices, tick):
    import numpy as np
    import torch

    yardstick = runpy.run_path(str(Path(__file__).parent.parent / "yardstick.py"))["yardstick"]
    ones = np.ones((len(x), 1), np.float32)
    step = yardstick(torch.from_numpy(np.hstack([x, ones])), torch.from_numpy(y), devices)
    while True:
        step()
        tick(devices)
