"""The guaranteed loss beside the measured one: few rounds, many devices, growing convexity.

    gossamer reproduce aims rate

The paper's abstract states a loss of O((m^(r+1)/T)^(1/r)) after T updates of m devices, where r is
the convexity of the mirror function: r = 2 is linear aggregation, and the power p has r = p + 1. It
is m·(m/T)^(1/r): a larger r is better where T < m, and only there.

The problem is that of the WPM paper's theory (logistic regression in 20 dimensions, all samples of
a device in every round, each device with a model of its own), on random links of about 1.5 per
device and round. The loss is the mean over rounds 0…T-1 of F(w̄_t) − F(w*), where F is the mean of
the devices' losses and w̄ the mean of their models. Every method has its best η in hindsight for
every m and T, of a grid with steps of √10. Where that is an end of the grid, `at_edge` says so.

A mirror step of constant rate gets shorter as the weights grow, and a power mean inflates what few
devices share. So linear aggregation has two controls: a rate that decays with the rounds, which
p = 3 is given too, and a gain of the mean distance from the start in the first rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gossamer as gs
from gossamer.report.figures import DASHES
from gossamer.results.palette import COLOURS
from gossamer.study import Study
from papers.drawing import saved_figure
from papers.wpm.paper import Scale, write_csv

TITLE = "theory: the guaranteed loss beside the measured one, few rounds and many devices"
_SAMPLES = 20  # per device
_LINKS_PER_DEVICE = 1.5

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Method:
    """A power mean or a control, and the learning rates that are tried.

    Attributes:
        name: Its name in the table.
        p: The power.
        gain: The gain in the first ten rounds.
        every: The rate is η/√(1 + t/every); 0 for a constant rate.
        exponents: The smallest and the largest logarithm of η to the base 10.
    """

    name: str
    p: float = 1
    gain: float = 1.0
    every: float = 0.0
    exponents: tuple[float, float] = (-2.0, 2.0)

    @property
    def etas(self) -> FloatArray:
        """The learning rates, each √10 times the one before."""
        low, high = self.exponents
        return np.asarray(10.0 ** np.arange(low, high + 0.1, 0.5))

    def at(self, eta: float) -> gs.Algorithm:
        """Return the method with a learning rate."""
        rate = gs.InverseSqrt(eta, self.every) if self.every else eta
        if self.gain == 1:
            return gs.Composition(gs.PowerMap(self.p), rate, gs.Constant())
        return gs.GainControl(rate, self.gain, rounds=10)


LINEAR = Method("p = 1")
POWERS = (
    Method("p = 3", 3, exponents=(-2.0, 1.0)),
    Method("p = 5", 5, exponents=(-3.5, 0.0)),
    Method("p = 15", 15, exponents=(-9.0, -3.5)),
)
CONTROLS = (
    Method("p = 1, η/√(1 + t)", every=1.0),
    Method("p = 3, η/√(1 + t)", 3, every=1.0, exponents=(-2.0, 1.5)),
    Method("p = 1, gain 1.05", gain=1.05),
)
METHODS = (LINEAR, *POWERS, *CONTROLS)


def cells(scale: Scale) -> list[Study]:
    """Return no runs: those of this part are small and not in the sweep."""
    return []


def make(scale: Scale, results: object, out: Path) -> list[Path]:
    """Write the table and the figure."""
    rows: list[dict[str, object]] = []
    devices: tuple[int, ...] = (8, 32, 128)
    stride = 1
    if scale.name == "tiny":
        devices = (4,)
        stride = 4
    for m in devices:
        rows += _rows(m, stride)
    write_csv(out / "rate.csv", rows)
    _draw(rows, devices, out / "rate.png")
    return [out / "rate.csv", out / "rate.png"]


def guaranteed(m: int, rounds: int, r: float) -> float:
    """Return (m^(r+1)/T)^(1/r), without its constant.

    Args:
        m: Number of devices.
        rounds: Number of rounds T.
        r: Convexity of the mirror function.

    Example:
        >>> guaranteed(32, 8, 2), round(guaranteed(32, 8, 16), 1)
        (64.0, 34.9)
    """
    return float(m * (m / rounds) ** (1 / r))


def _rows(m: int, stride: int) -> Iterator[dict[str, object]]:
    """Yield the rows of the table for one number of devices, with every so many-th rate."""
    problem = gs.Logistic(m, samples=_SAMPLES, regularisation=1e-6)
    times = (m // 4, m // 2, m, 2 * m, 4 * m)
    losses = {}
    for method in METHODS:
        curves = []
        for eta in method.etas[::stride]:
            curves.append(_losses(problem, method.at(float(eta)), times[-1]))
        losses[method] = np.stack(curves)
    for T in times:
        linear = losses[LINEAR][:, T - 1].min()
        for method in METHODS:
            etas = method.etas[::stride]
            best = int(losses[method][:, T - 1].argmin())
            values = {
                "eta": etas[best],
                "loss": losses[method][best, T - 1],
                "of_linear": losses[method][best, T - 1] / linear,
                "idle": losses[method][best, 0],
            }
            if method not in CONTROLS:
                values["guaranteed"] = guaranteed(m, T, method.p + 1)
                values["guaranteed_of_linear"] = values["guaranteed"] / guaranteed(m, T, 2)
            row: dict[str, object] = {"devices": m, "rounds": T, "rounds/devices": T / m}
            row |= {"method": method.name}
            row |= {name: f"{value:.4g}" for name, value in values.items()}
            yield row | {"at_edge": best in (0, len(etas) - 1)}


def _losses(problem: gs.Logistic, method: gs.Algorithm, rounds: int) -> FloatArray:
    """Return the mean loss of a run above the optimum, after each of its rounds."""
    m = problem.devices
    task = gs.Task(problem.load(), problem.split(), gs.LogisticRegression(), batch=0)
    network = gs.Random(m, density=_LINKS_PER_DEVICE / (m - 1))
    simulator = gs.Simulator(gs.Plan(task, network, method, rounds, dtype="float64", threads=1))
    means = [simulator.models().mean(0).numpy()]
    for t in range(1, rounds):
        simulator.advance(t)
        means.append(simulator.models().mean(0).numpy())
    data = problem.load()
    signed = data.x.double().numpy() * (2 * data.y.numpy() - 1)[:, None]
    points = np.stack([*means, problem.optimum()])
    values = np.logaddexp(0.0, -(points @ signed.T)).mean(axis=1)
    return np.asarray(np.cumsum(values[:-1] - values[-1]) / np.arange(1, rounds + 1))


def _draw(rows: list[dict[str, object]], devices: tuple[int, ...], path: Path) -> None:
    """Draw the ratio to linear aggregation: measured, and as guaranteed."""
    with saved_figure(
        path, 1, len(devices), figsize=(4 * len(devices), 3.4), sharey=True, squeeze=False
    ) as (figure, axes):
        for axis, m in zip(axes[0], devices, strict=True):
            here = [row for row in rows if row["devices"] == m]
            for k, method in enumerate(POWERS):
                _line(axis, here, method, "of_linear", COLOURS[k], DASHES[0], "measured")
                _line(axis, here, method, "guaranteed_of_linear", COLOURS[k], DASHES[1], "bound")
            for k, method in enumerate(CONTROLS):
                _line(axis, here, method, "of_linear", "0.5", DASHES[k], "measured")
            axis.axhline(1.0, color="0.6", linewidth=0.8)
            axis.set_title(f"{m} devices", fontsize=9)
            axis.set_xscale("log", base=2)
            axis.set_xticks([0.25, 0.5, 1, 2, 4], ["1/4", "1/2", "1", "2", "4"])
            axis.set(xlabel="rounds per device, T/m", ylim=(0, 2.2))
        axes[0][0].set_ylabel("loss / loss of linear aggregation")
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)


def _line(
    axis: Any,
    rows: list[dict[str, object]],
    method: Method,
    column: str,
    colour: str,
    dash: Any,
    word: str,
) -> None:
    """Draw one column of one method over the rounds."""
    of_method = [row for row in rows if row["method"] == method.name]
    share = [float(str(row["rounds/devices"])) for row in of_method]
    line = [float(str(row[column])) for row in of_method]
    axis.plot(share, line, color=colour, linestyle=dash, label=f"{word}, {method.name}")
