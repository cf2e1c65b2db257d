"""Convex problems whose optimum is known, so that a method's error can be measured and not only its progress.

Device i has a truth of its own, w_i = (common + heterogeneity·own_i)/√dimension with standard normal parts, and samples
x ~ N(0, I). The objective is (1/m)·Σ_i (the mean loss over device i's samples). The devices hold equally many, so this
is the mean over all samples. The test samples are the training samples: what is measured is the objective itself.

    >>> problem = LeastSquares(devices=10)
    >>> problem.loss(problem.optimum()) < problem.loss(np.zeros(20))
    True
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from gossamer import draws
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.tasks.data import Data
from gossamer.tasks.splits import Split

FloatArray = NDArray[np.float64]

MAX_VALUES = 1 << 28
"""The most numbers (devices × samples × dimension) that a problem may have."""


@dataclass(frozen=True)
class _Synthetic:
    devices: int
    dimension: int = 20
    samples: int = 50
    heterogeneity: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for field in ("devices", "dimension", "samples"):
            if getattr(self, field) < 1:
                raise InputError(field, getattr(self, field), "a whole number, at least 1")
        if self.devices * self.samples * self.dimension > MAX_VALUES:
            most = MAX_VALUES // (self.devices * self.dimension)
            raise InputError(
                "samples", self.samples, f"at most {most} for so many devices and dimensions"
            )
        _check_not_negative("heterogeneity", self.heterogeneity)

    def split(self) -> Split:
        """The samples of each device, in order."""
        return Split(
            np.arange(self.devices * self.samples), np.arange(self.devices + 1) * self.samples
        )

    @cached_property
    def _inputs(self) -> FloatArray:
        """x [devices·samples, dimension]. Rounded to float32: `Data` holds the problem that `optimum` solves."""
        rows = np.arange(self.devices * self.samples)[:, None]
        return _rounded(draws.normal(self.seed, "synthetic/x", rows, np.arange(self.dimension)))

    def _margins(self) -> FloatArray:
        """⟨w_i, x⟩ for every sample x of its device i."""
        axes = np.arange(self.dimension)
        own = draws.normal(self.seed, "synthetic/own", np.arange(self.devices)[:, None], axes)
        truth = (
            draws.normal(self.seed, "synthetic/common", axes) + self.heterogeneity * own
        ) / np.sqrt(self.dimension)
        by_device = self._inputs.reshape(self.devices, self.samples, self.dimension)
        return np.asarray(by_device @ truth[:, :, None]).reshape(-1)

    def _covariance_eigenvalues(self) -> FloatArray:
        x = self._inputs
        return np.asarray(np.linalg.eigvalsh(x.T @ x / len(x)), dtype=np.float64)


@register("data", "least-squares")
@dataclass(frozen=True)
class LeastSquares(_Synthetic):
    """y = ⟨w_i, x⟩ + noise·normal; the loss of a sample is (⟨w, x⟩ - y)²/2."""

    noise: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_not_negative("noise", self.noise)

    @cached_property
    def _targets(self) -> FloatArray:
        rows = np.arange(self.devices * self.samples)
        return _rounded(
            self._margins() + self.noise * draws.normal(self.seed, "synthetic/noise", rows)
        )

    def load(self) -> Data:
        """x float32 [devices·samples, dimension], y float32 [devices·samples]."""
        return _data(
            "least-squares", self._inputs, torch.from_numpy(self._targets.astype(np.float32)), None
        )

    def loss(self, w: FloatArray) -> float:
        """The objective at w."""
        return float(np.mean((self._inputs @ w - self._targets) ** 2) / 2)

    def optimum(self) -> FloatArray:
        """Where the objective is smallest (the one of smallest norm, if there are several)."""
        return np.asarray(np.linalg.lstsq(self._inputs, self._targets, rcond=None)[0])

    def smoothness(self) -> float:
        """The largest curvature of the objective."""
        return float(self._covariance_eigenvalues()[-1])

    def strong_convexity(self) -> float:
        """The smallest curvature of the objective (0 where there are fewer samples than dimensions)."""
        return max(float(self._covariance_eigenvalues()[0]), 0.0)


@register("data", "logistic")
@dataclass(frozen=True)
class Logistic(_Synthetic):
    """y = 1 with probability 1/(1 + exp(-⟨w_i, x⟩)), else 0.

    With s = 2y - 1 the loss of a sample is log(1 + exp(-s·⟨w, x⟩)) + regularisation·‖w‖²/2.
    """

    regularisation: float = 1e-2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1e-6 <= self.regularisation < np.inf:
            raise InputError(
                "regularisation", self.regularisation, "a number above 0 (at least 1e-6)"
            )

    @cached_property
    def _labels(self) -> NDArray[np.int64]:
        from scipy.special import expit

        rows = np.arange(self.devices * self.samples)
        return (draws.uniform(self.seed, "synthetic/label", rows) < expit(self._margins())).astype(
            np.int64
        )

    @cached_property
    def _signed(self) -> FloatArray:
        return self._inputs * (2 * self._labels - 1)[:, None]

    def load(self) -> Data:
        """x float32 [devices·samples, dimension], y int64 in {0, 1} [devices·samples]."""
        return _data("logistic", self._inputs, torch.from_numpy(self._labels), 2)

    def loss(self, w: FloatArray) -> float:
        """The objective at w."""
        return float(
            np.logaddexp(0, -(self._signed @ w)).mean() + self.regularisation / 2 * (w @ w)
        )

    def optimum(self) -> FloatArray:
        """Where the objective is smallest, to about 1e-12: Newton's method, each step halved until it goes down."""
        from scipy.special import expit

        w = np.zeros(self.dimension)
        for _ in range(100):
            wrong = expit(-(self._signed @ w))
            gradient = self.regularisation * w - self._signed.T @ wrong / len(wrong)
            curvature = (
                (self._inputs * (wrong * (1 - wrong))[:, None]).T @ self._inputs / len(wrong)
            )
            step = np.linalg.solve(
                curvature + self.regularisation * np.eye(self.dimension), gradient
            )
            here, scale = self.loss(w), 1.0
            # Close by, the loss no longer shows which way is down, and Newton's full step is right anyway.
            while gradient @ step > 1e-12 and self.loss(w - scale * step) > here:
                scale /= 2
            w = w - scale * step
            if np.abs(step).max() <= 1e-13 * max(1.0, np.abs(w).max()):
                break
        return w

    def smoothness(self) -> float:
        """A bound on the largest curvature of the objective: the logistic function's slope is at most 1/4."""
        return float(self._covariance_eigenvalues()[-1]) / 4 + self.regularisation

    def strong_convexity(self) -> float:
        """A bound from below on the curvature of the objective."""
        return self.regularisation


def _rounded(values: FloatArray) -> FloatArray:
    return values.astype(np.float32).astype(np.float64)


def _check_not_negative(field: str, value: float) -> None:
    if not 0 <= value < np.inf:
        raise InputError(field, value, "a number from 0 upwards")


def _data(name: str, inputs: FloatArray, y: torch.Tensor, classes: int | None) -> Data:
    x = torch.from_numpy(inputs.astype(np.float32))
    return Data(x, y, x, y, name, classes)
