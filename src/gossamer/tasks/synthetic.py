"""Convex problems with a known optimum: a method's error can be measured, not only its progress.

Device i has its own true model w_i = (common + heterogeneity·own_i)/√dimension, both standard
normal, and samples x ~ N(0, I). The objective is the mean over the devices of the mean loss of
their samples. All hold equally many, so it is the mean over all samples. The test samples are the
training samples: what is measured is the objective itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from gossamer import draws
from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.tasks.data import Data
from gossamer.tasks.splits import Split

FloatArray = NDArray[np.float64]

MAX_VALUES = 1 << 28
"""Most values (devices × samples × dimension) that a problem may have."""

# The largest number; the iteration stops when a step is below 1e-13.
_NEWTON_STEPS = 100


@dataclass(frozen=True)
class _Synthetic:
    devices: int
    dimension: int = 20
    samples: int = 50
    heterogeneity: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for field in ("devices", "dimension", "samples"):
            checks.whole(field, getattr(self, field), 1)
        if self.devices * self.samples * self.dimension > MAX_VALUES:
            most = MAX_VALUES // (self.devices * self.dimension)
            accepted = f"at most {most} for so many devices and dimensions"
            raise InputError("samples", self.samples, accepted)
        checks.not_negative("heterogeneity", self.heterogeneity)

    def split(self) -> Split:
        """Return the split: the samples of each device, in order."""
        index = np.arange(self.devices * self.samples)
        return Split(index, np.arange(self.devices + 1) * self.samples)

    @cached_property
    def _inputs(self) -> FloatArray:
        """The inputs x [devices·samples, dimension].

        They are rounded to float32, so that `Data` holds the problem that `optimum` solves.
        """
        rows = np.arange(self.devices * self.samples)[:, None]
        return _rounded(draws.normal(self.seed, "synthetic/x", rows, np.arange(self.dimension)))

    def _margins(self) -> FloatArray:
        """Return ⟨w_i, x⟩ for every sample x of every device i."""
        axes = np.arange(self.dimension)
        common = draws.normal(self.seed, "synthetic/common", axes)
        own = draws.normal(self.seed, "synthetic/own", np.arange(self.devices)[:, None], axes)
        truth = (common + self.heterogeneity * own) / np.sqrt(self.dimension)
        by_device = self._inputs.reshape(self.devices, self.samples, self.dimension)
        return np.asarray(by_device @ truth[:, :, None]).reshape(-1)

    def _covariance_eigenvalues(self) -> FloatArray:
        x = self._inputs
        return np.asarray(np.linalg.eigvalsh(x.T @ x / len(x)), dtype=np.float64)


@register("data", "least-squares")
@dataclass(frozen=True)
class LeastSquares(_Synthetic):
    """Least squares: y = ⟨w_i, x⟩ + noise·normal; the loss of a sample is (⟨w, x⟩ − y)²/2.

    Args:
        devices: Number of devices.
        dimension: Number of parameters.
        samples: Samples per device.
        heterogeneity: How much the devices' true models differ (0: not at all).
        seed: Seed of the problem.
        noise: Standard deviation of the noise.

    Raises:
        InputError: If a value is out of range, or there are too many samples.

    Example:
        >>> problem = LeastSquares(devices=10)
        >>> problem.loss(problem.optimum()) < problem.loss(np.zeros(20))
        True
    """

    noise: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.not_negative("noise", self.noise)

    @cached_property
    def _targets(self) -> FloatArray:
        rows = np.arange(self.devices * self.samples)
        noise = draws.normal(self.seed, "synthetic/noise", rows)
        return _rounded(self._margins() + self.noise * noise)

    def load(self) -> Data:
        """Return x float32 [devices·samples, dimension] and y float32 [devices·samples]."""
        targets = torch.from_numpy(self._targets.astype(np.float32))
        return _data("least-squares", self._inputs, targets, None)

    def loss(self, w: FloatArray) -> float:
        """Return the objective at w."""
        return float(np.mean((self._inputs @ w - self._targets) ** 2) / 2)

    def optimum(self) -> FloatArray:
        """Return where the objective is smallest; of several points, that of smallest norm."""
        return np.asarray(np.linalg.lstsq(self._inputs, self._targets, rcond=None)[0])

    def smoothness(self) -> float:
        """Return the largest curvature of the objective."""
        return float(self._covariance_eigenvalues()[-1])

    def strong_convexity(self) -> float:
        """Return the smallest curvature of the objective; 0 with fewer samples than dimensions."""
        return max(float(self._covariance_eigenvalues()[0]), 0.0)


@register("data", "logistic")
@dataclass(frozen=True)
class Logistic(_Synthetic):
    """Logistic regression: y = 1 with probability 1/(1 + exp(−⟨w_i, x⟩)), else 0.

    With s = 2y − 1 the loss of a sample is log(1 + exp(−s·⟨w, x⟩)) + regularisation·‖w‖²/2.

    Args:
        devices: Number of devices.
        dimension: Number of parameters.
        samples: Samples per device.
        heterogeneity: How much the devices' true models differ (0: not at all).
        seed: Seed of the problem.
        regularisation: Weight of ‖w‖²/2, at least 1e-6.

    Raises:
        InputError: If a value is out of range, or there are too many samples.

    Example:
        >>> problem = Logistic(devices=10)
        >>> problem.loss(problem.optimum()) < problem.loss(np.zeros(20))
        True
    """

    regularisation: float = 1e-2

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number("regularisation", self.regularisation, least=1e-6)

    @cached_property
    def _labels(self) -> NDArray[np.int64]:
        from scipy.special import expit

        rows = np.arange(self.devices * self.samples)
        drawn = draws.uniform(self.seed, "synthetic/label", rows)
        return (drawn < expit(self._margins())).astype(np.int64)

    @cached_property
    def _signed(self) -> FloatArray:
        return self._inputs * (2 * self._labels - 1)[:, None]

    def load(self) -> Data:
        """Return x float32 [devices·samples, dimension] and y int64 in {0, 1}."""
        return _data("logistic", self._inputs, torch.from_numpy(self._labels), 2)

    def loss(self, w: FloatArray) -> float:
        """Return the objective at w."""
        losses = np.logaddexp(0, -(self._signed @ w))
        return float(losses.mean() + self.regularisation / 2 * (w @ w))

    def optimum(self) -> FloatArray:
        """Return where the objective is smallest, to about 1e-12.

        By Newton's method, with each step halved until the loss falls.
        """
        from scipy.special import expit

        w = np.zeros(self.dimension)
        for _ in range(_NEWTON_STEPS):
            wrong = expit(-(self._signed @ w))
            gradient = self.regularisation * w - self._signed.T @ wrong / len(wrong)
            weighted = self._inputs * (wrong * (1 - wrong))[:, None]
            curvature = weighted.T @ self._inputs / len(wrong)
            hessian = curvature + self.regularisation * np.eye(self.dimension)
            step = np.linalg.solve(hessian, gradient)
            here = self.loss(w)
            scale = 1.0
            # Close to the optimum, rounding hides whether the loss falls; the full step is right.
            while gradient @ step > 1e-12 and self.loss(w - scale * step) > here:
                scale /= 2
            w = w - scale * step
            if np.abs(step).max() <= 1e-13 * max(1.0, np.abs(w).max()):
                break
        return w

    def smoothness(self) -> float:
        """Return a bound on the largest curvature: the logistic function's slope is at most 1/4."""
        return float(self._covariance_eigenvalues()[-1]) / 4 + self.regularisation

    def strong_convexity(self) -> float:
        """Return a lower bound on the curvature of the objective."""
        return self.regularisation


def _rounded(values: FloatArray) -> FloatArray:
    return values.astype(np.float32).astype(np.float64)


def _data(name: str, inputs: FloatArray, y: torch.Tensor, classes: int | None) -> Data:
    x = torch.from_numpy(inputs.astype(np.float32))
    return Data(x, y, x, y, name, classes)
