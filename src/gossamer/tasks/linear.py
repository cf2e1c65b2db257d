"""Linear models in closed form: softmax and logistic regression, linear SVM, least squares.

A row is the weight matrix [outputs, features + 1], its last column the bias. A gradient is two
batched matrix products.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from gossamer import backend
from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.backend import Batches, Scratch
from gossamer.errors import InputError
from gossamer.tasks.class_metrics import Accuracy
from gossamer.tasks.data import Data
from gossamer.tasks.learner import Buffers, Learner, Scores, uniform_start
from gossamer.tasks.metric import Metric
from gossamer.tasks.metrics import Meters

# The metric that is computed with the loss, faster than from the outputs.
_ACCURACY = Accuracy()

# Outputs that an evaluation holds at once: few enough to stay in cache, enough for a fast product.
_OUTPUTS_AT_ONCE = 3 << 19


class LinearLearner(Learner):
    """outputs = W·x + b; a subclass gives the loss of the outputs and its slope.

    Args:
        outputs: Number of outputs.
        features: Number of inputs.
        bias: True if there is a bias.
        l2: Adds l2/2·‖w‖² to the loss.
    """

    concurrent = True

    def __init__(self, outputs: int, features: int, bias: bool, l2: float) -> None:
        self.outputs = outputs
        self.columns = features
        self.bias = bias
        self.l2 = l2
        self.shapes = {"weight": (outputs, features + bias)}
        self._scratch = Scratch()

    @abstractmethod
    def _slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return ∂loss/∂outputs [devices, outputs, batch] for the sum over the batch.

        It may be written into `outputs`.
        """

    @abstractmethod
    def _loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the losses [devices, samples] of outputs [devices, outputs, samples]."""

    def init(self, seed: int) -> Tensor:
        return uniform_start(seed, self.parameters, max(1, self.columns))

    def features(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), -1)

    def unstack(self, row: Tensor) -> dict[str, Tensor]:
        weight = super().unstack(row)["weight"]
        if not self.bias:
            return {"weight": weight}
        return {"weight": weight[..., :-1], "bias": weight[..., -1]}

    def stack(self, parts: dict[str, Tensor]) -> Tensor:
        weight = parts["weight"]
        if self.bias:
            weight = torch.cat([weight, parts["bias"][..., None]], dim=-1)
        return super().stack({"weight": weight})

    def _outputs(self, w: Tensor, x: Tensor) -> Tensor:
        """Return each device's outputs on its batch: [devices, outputs, batch]."""
        return backend.linear_outputs(w, x, self.outputs, self.bias, self._scratch)

    def gradient(
        self, w: Tensor, x: Tensor, y: Tensor, buffers: Buffers, keys: Tensor, out: Tensor
    ) -> None:
        slope = self._slope(self._outputs(w, x), y).mul_(1 / x.shape[1])
        backend.linear_gradient(slope, x, self.bias, out, self._scratch)
        self._add_regularisation(w, out)

    def _add_regularisation(self, w: Tensor, gradient: Tensor) -> None:
        if self.l2:
            gradient.add_(w, alpha=self.l2)

    def loss(self, w: Tensor, x: Tensor, y: Tensor, buffers: Buffers, keys: Tensor) -> Tensor:
        return self._loss(self._outputs(w, x), y).mean(1) + self.l2 / 2 * (w * w).sum(1)

    def scores(
        self,
        w: Tensor,
        x: Tensor,
        y: Tensor,
        buffers: Buffers,
        metrics: Sequence[Metric] = (),
    ) -> Scores:
        others = [metric for metric in metrics if metric != _ACCURACY]
        # One tensor for all models, not one for each part: small tensors that are kept between
        # large ones that are freed would leave gaps of a hundred megabytes.
        losses = w.new_empty(len(w))
        values = {metric.name: w.new_empty(len(w)) for metric in metrics}
        at_once = max(1, _OUTPUTS_AT_ONCE // (len(x) * self.outputs))
        for first in range(0, len(w), at_once):
            part = slice(first, first + at_once)
            models = w[part]
            outputs = self._test_outputs(models, x)
            meters = Meters(others)
            meters.add(outputs.transpose(1, 2), y)
            for name, value in meters.values(w).items():
                values[name][part] = value
            loss, correct = self._judge(outputs, y.expand(len(models), -1))
            if len(others) < len(metrics):
                values[_ACCURACY.name][part] = correct.to(w.dtype).mean(1)
            losses[part] = loss.mean(1) + self.l2 / 2 * (models * models).sum(1)
        return Scores(losses, values)

    def _test_outputs(self, models: Tensor, x: Tensor) -> Tensor:
        """Return the outputs of all models on the same samples: [models, outputs, samples]."""
        rows = len(models) * self.outputs
        weight = models.view(rows, -1)
        out = self._scratch.get("scores", models, rows, len(x))
        if self.bias:
            torch.addmm(weight[:, -1:], weight[:, :-1], x.T, out=out)
        else:
            torch.mm(weight, x.T, out=out)
        return out.view(len(models), self.outputs, len(x))

    def _judge(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each sample and whether it is correct; may overwrite `outputs`."""
        return self._loss(outputs, y), self._correct(outputs, y)

    def _correct(self, outputs: Tensor, y: Tensor) -> Tensor:
        return outputs.max(1).indices == y  # argmax is five times slower across rows


class _SoftmaxLearner(LinearLearner):
    def batch_gradient(
        self, w: Tensor, batches: Batches, buffers: Buffers, keys: Tensor, out: Tensor
    ) -> None:
        backend.softmax_gradient(w, batches, self.outputs, out)
        self._add_regularisation(w, out)

    def _slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        return backend.softmax_slope(outputs, y)

    def _loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return torch.logsumexp(outputs, 1) - outputs.gather(1, y[:, None, :]).squeeze(1)

    def _judge(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if outputs.device.type != "cpu":  # asking for ties would wait for the GPU
            return super()._judge(outputs, y)
        own, others, rival = split_outputs(outputs, y)
        correct = own_is_first(own, others, rival, y)
        others_to_rival = others.sub_(rival[:, None]).exp_().sum(1).log_()
        return softplus(others_to_rival.add_(rival).sub_(own)), correct


def split_outputs(outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Split outputs into that of the correct class and those of the others.

    Args:
        outputs: [models, classes, samples]. They are overwritten.
        y: The correct classes [models, samples].

    Returns:
        The output of the correct class; those of the others, in the memory of `outputs`, −∞ at the
        correct class; the largest of the others.
    """
    index = y[:, None, :]
    own = outputs.gather(1, index).squeeze(1)
    others = outputs.scatter_(1, index, -math.inf)
    rival = others.amax(1)
    rival.clamp_min_(torch.finfo(outputs.dtype).min)  # finite if there is only one class
    return own, others, rival


def own_is_first(own: Tensor, others: Tensor, rival: Tensor, y: Tensor) -> Tensor:
    """True where the correct class is the first with the largest output.

    That is far faster than to ask which class it is.

    Args:
        own: As returned by `split_outputs`, like the next two.
        others: Outputs of the other classes.
        rival: The largest of them.
        y: The correct classes.
    """
    first = own > rival
    tied = own == rival
    if tied.any():
        first[tied] = y[tied] < others.transpose(1, 2)[tied].max(1).indices
    return first


class _SvmLearner(LinearLearner):
    def _missing_margin(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return 1 + max_{j≠y} s_j − s_y, and the j and y that it is between."""
        own = y[:, None, :]
        rival = outputs.scatter(1, own, -math.inf).max(1, keepdim=True)
        return 1 + rival.values - outputs.gather(1, own), rival.indices, own

    def _slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        missing, rival, own = self._missing_margin(outputs, y)
        wrong = (missing > 0).to(outputs.dtype)
        return outputs.zero_().scatter_add_(1, rival, wrong).scatter_add_(1, own, -wrong)

    def _loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return self._missing_margin(outputs, y)[0].clamp_min(0).squeeze(1)


class _LeastSquaresLearner(LinearLearner):
    def _slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        return outputs.sub_(y[:, None, :])

    def _loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (outputs.squeeze(1) - y).square() / 2

    def _correct(self, outputs: Tensor, y: Tensor) -> Tensor:
        return outputs.squeeze(1).round() == y

    def conjugate(self, z: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Solve (XᵀX/n + l2·I)·w = z + Xᵀy/n by Cholesky's decomposition."""
        n = x.shape[1]
        features = x.shape[2]
        across = x.transpose(1, 2)
        identity = torch.eye(features, dtype=x.dtype, device=x.device)
        curvature = torch.bmm(across, x) / n + self.l2 * identity
        factor, failed = torch.linalg.cholesky_ex(curvature)
        pivots = factor.diagonal(dim1=1, dim2=2)
        # The square root of what rounding leaves of a pivot that is 0.
        smallest = math.sqrt(features * torch.finfo(x.dtype).eps) * pivots.amax(1)
        if failed.any() or (pivots.amin(1) <= smallest).any():
            accepted = (
                "a number above 0, since a device has fewer samples than its loss has curvatures"
            )
            raise InputError("model.l2", self.l2, accepted)
        right_side = z[:, :, None] + torch.bmm(across, y[:, :, None]) / n
        return torch.cholesky_solve(right_side, factor).squeeze(2)


class _LogisticLearner(LinearLearner):
    def _slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        return outputs.sigmoid_().sub_(y[:, None, :])

    def _loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return -logsigmoid(outputs.squeeze(1) * (2 * y - 1))

    def _correct(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (outputs.squeeze(1) > 0) == (y > 0)


@dataclass(frozen=True)
class _Linear:
    l2: float = 0.0
    _learner: ClassVar[type[LinearLearner]]
    _bias: ClassVar[bool]

    def __post_init__(self) -> None:
        checks.not_negative("l2", self.l2)

    @abstractmethod
    def _outputs(self, data: Data) -> int:
        """Return the number of outputs; raise InputError if the data do not fit the model."""

    def learner(self, data: Data) -> Learner:
        return self._learner(self._outputs(data), math.prod(data.shape), self._bias, self.l2)


@dataclass(frozen=True)
class _Classifier(_Linear):
    _bias: ClassVar[bool] = True

    def _outputs(self, data: Data) -> int:
        if data.classes is None:
            raise InputError(
                "model",
                type(self).__name__.lower(),
                '"least-squares", since the targets are not classes',
            )
        return data.classes


@register("model", "softmax")
@dataclass(frozen=True)
class Softmax(_Classifier):
    """Softmax regression with a bias (logistic regression for several classes).

    Args:
        l2: Adds l2/2·‖w‖² to the loss.

    Raises:
        InputError: If l2 is negative.

    Example:
        >>> from gossamer import Digits
        >>> Softmax().learner(Digits().load()).parameters
        650
    """

    _learner: ClassVar[type[LinearLearner]] = _SoftmaxLearner


@register("model", "svm")
@dataclass(frozen=True)
class Svm(_Classifier):
    """The linear support vector machine, with a bias.

    Its loss is the multi-class hinge of Crammer and Singer: max(0, 1 + max_{j≠y} s_j − s_y).

    Args:
        l2: Adds l2/2·‖w‖² to the loss.

    Raises:
        InputError: If l2 is negative.

    Example:
        >>> from gossamer import Digits
        >>> Svm(l2=0.01).learner(Digits().load()).parameters
        650
    """

    _learner: ClassVar[type[LinearLearner]] = _SvmLearner


@register("model", "least-squares")
@dataclass(frozen=True)
class LinearRegression(_Linear):
    """Least squares, ½·(⟨w, x⟩ − y)², without a bias.

    Of labels, it predicts the whole number that is nearest to its output.

    Args:
        l2: Adds l2/2·‖w‖² to the loss.

    Raises:
        InputError: If l2 is negative.

    Example:
        >>> from gossamer import LeastSquares
        >>> LinearRegression().learner(LeastSquares(devices=3, dimension=7).load()).parameters
        7
    """

    _learner: ClassVar[type[LinearLearner]] = _LeastSquaresLearner
    _bias: ClassVar[bool] = False

    def _outputs(self, data: Data) -> int:
        if data.y.dim() != 1:
            shape = list(data.y.shape[1:])
            accepted = f"a module: each target has shape {shape}, not one value"
            raise InputError("model", "least-squares", accepted)
        return 1


@register("model", "logistic")
@dataclass(frozen=True)
class LogisticRegression(_Linear):
    """Logistic regression for the classes 0 and 1: one row of weights, without a bias.

    Args:
        l2: Adds l2/2·‖w‖² to the loss.

    Raises:
        InputError: If l2 is negative.

    Example:
        >>> from gossamer import Logistic
        >>> LogisticRegression().learner(Logistic(devices=3, dimension=7).load()).parameters
        7
    """

    _learner: ClassVar[type[LinearLearner]] = _LogisticLearner
    _bias: ClassVar[bool] = False

    def _outputs(self, data: Data) -> int:
        if data.classes != 2:
            raise InputError(
                "model", "logistic", '"softmax", since there are not exactly two classes'
            )
        return 1
