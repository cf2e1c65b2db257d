"""Parts of the study in own_code.toml: data, a model, its loss, a metric and a network.

Ten weather stations predict a temperature. One in ten readings is far off, so the loss grows
linearly. A vehicle drives from station to station and links two of them per round.

    gossamer run examples/own_code.toml --allow-code
"""

from dataclasses import dataclass

import numpy as np
from torch import nn

import gossamer as gs


def readings(samples=800, outliers=0.1, seed=0):
    """Return samples of 6 sensors and the temperature to predict."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, 6))
    y = np.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.05 * rng.normal(size=samples)
    train = slice(samples // 4, None)
    test = slice(0, samples // 4)
    off = rng.random(samples) < outliers
    noisy = np.where(off, y + 10, y)
    return gs.from_arrays(x[train], noisy[train], x[test], y[test], name="readings")


def make(width=32):
    """Return the network to train."""
    return nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, 1))


def log_cosh(outputs, targets):
    """Return log cosh of the error: quadratic near zero, linear far away."""
    error = outputs.squeeze(-1) - targets
    return nn.functional.softplus(-2 * error) + error - np.log(2)


def within(outputs, targets, degrees=0.5):
    """Return how many predictions are within some degrees, and of how many."""
    error = (outputs.squeeze(-1) - targets).abs()
    return (error < degrees).sum(), len(targets)


@dataclass(frozen=True)
class Route(gs.Network):
    """A vehicle passes the stations in turn and carries models from each to the next."""

    devices: int = 10

    def links(self, t):
        here = t % self.devices
        return gs.Links.of(self.devices, [(here, (here + 1) % self.devices)])
