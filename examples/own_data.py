"""Convert logs, one CSV file per robot, to arrays, sample lists and a spec, and run the spec."""

import json
import tempfile
from pathlib import Path

import numpy as np

import gossamer as gs
from gossamer.study import spec

ROBOTS = 8
READINGS = 150


# Synthetic logs: three kinds of ground cause three vibration patterns, and each robot drives mostly
# on one kind.
def write_logs(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for robot in range(ROBOTS):
        ground = np.where(
            rng.uniform(size=READINGS) < 0.8, robot % 3, rng.integers(3, size=READINGS)
        )
        shaking = rng.normal(size=(READINGS, 6)) + 2.5 * np.eye(3, 6)[ground]
        np.savetxt(
            folder / f"robot{robot}.csv",
            np.column_stack([ground, shaking]),
            delimiter=",",
            fmt="%.4f",
        )


SPEC = """
rounds = 100

[data]
kind = "arrays"
path = "fleet.npz"

[split]
kind = "lists"
path = "fleet.json"

[network]
kind = "mobility"
devices = 8
radius = 0.4

[[algorithm]]
kind = "d-psgd"
eta = 0.05

[[algorithm]]
kind = "tracking"
eta = 0.05
"""

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    write_logs(folder)

    # Every fifth reading is a test sample. `lists` has the indices of the other readings per robot.
    x: list[list[float]] = []
    y: list[int] = []
    x_test: list[list[float]] = []
    y_test: list[int] = []
    lists: list[list[int]] = []
    for robot in range(ROBOTS):
        log = np.loadtxt(folder / f"robot{robot}.csv", delimiter=",")
        test = np.arange(len(log)) % 5 == 0
        lists.append(list(range(len(y), len(y) + int((~test).sum()))))
        x += log[~test, 1:].tolist()
        y += log[~test, 0].astype(int).tolist()
        x_test += log[test, 1:].tolist()
        y_test += log[test, 0].astype(int).tolist()
    mean = np.mean(x, axis=0)
    scale = np.std(x, axis=0)
    np.savez(
        folder / "fleet.npz",
        x=(x - mean) / scale,
        y=y,
        x_test=(x_test - mean) / scale,
        y_test=y_test,
    )
    (folder / "fleet.json").write_text(json.dumps(lists))
    (folder / "fleet.toml").write_text(SPEC)

    # The same as `gossamer compare fleet.toml`:
    print(f"{'method':18}{'accuracy':>9}{'worst':>8}")
    for method in gs.compare(spec.studies(spec.read(folder / "fleet.toml"), "fleet")):
        result = method.runs[0].summary
        print(f"{method.label:18}{result['accuracy']:9.3f}{result['accuracy_worst']:8.3f}")
