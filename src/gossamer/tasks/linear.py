"""Linear models in closed form: softmax regression, the linear SVM, least squares and logistic regression.

A row is the weight matrix [outputs, features + 1], its last column the bias. A gradient is two batched matrix products.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from gossamer import backend
from gossamer._core.registry import register
from gossamer.backend import Batches, Scratch
from gossamer.errors import InputError
from gossamer.tasks.data import Data
from gossamer.tasks.learner import Buffers, Learner, Scores, uniform_start

_OUTPUTS_AT_ONCE = (
    3 << 19
)  # that an evaluation holds: few enough to stay in cache, enough for a fast product


class LinearLearner(Learner):
    """outputs = W·x + b; a subclass gives the loss of outputs and its slope."""

    concurrent = True

    def __init__(self, outputs: int, features: int, bias: bool, l2: float) -> None:
        self.outputs, self.columns, self.bias, self.l2 = outputs, features, bias, l2
        self.shapes = {"weight": (outputs, features + bias)}
        self._scratch = Scratch()

    @abstractmethod
    def _slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        """∂loss/∂outputs [devices, outputs, batch], for the sum over the batch; may be written into `outputs`."""

    @abstractmethod
    def _loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each sample, from outputs [devices, outputs, samples]: [devices, samples]."""

    def init(self, seed: int) -> Tensor:
        return uniform_start(seed, self.parameters, max(1, self.columns))

    def features(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), -1)

    def unstack(self, row: Tensor) -> dict[str, Tensor]:
        weight = super().unstack(row)["weight"]
        return (
            {"weight": weight[..., :-1], "bias": weight[..., -1]}
            if self.bias
            else {"weight": weight}
        )

    def _outputs(self, w: Tensor, x: Tensor) -> Tensor:
        """Return each device's outputs on its batch: [devices, outputs, batch]."""
        return backend.linear_outputs(w, x, self.outputs, self.bias, self._scratch)

    def gradient(
        self, w: Tensor, x: Tensor, y: Tensor, buffers: Buffers, keys: Tensor, out: Tensor
    ) -> None:
        slope = self._slope(self._outputs(w, x), y).mul_(1 / x.shape[1])
        backend.linear_gradient(slope, x, self.bias, out, self._scratch)
        if self.l2:
            out.add_(w, alpha=self.l2)

    def loss(self, w: Tensor, x: Tensor, y: Tensor, buffers: Buffers, keys: Tensor) -> Tensor:
        return self._loss(self._outputs(w, x), y).mean(1) + self.l2 / 2 * (w * w).sum(1)

    def scores(self, w: Tensor, x: Tensor, y: Tensor, buffers: Buffers) -> Scores:
        losses, accuracies = [], []
        for some in w.split(max(1, _OUTPUTS_AT_ONCE // (len(x) * self.outputs))):
            k = len(some)
            weight, room = (
                some.view(k * self.outputs, -1),
                self._scratch.get("scores", w, k * self.outputs, len(x)),
            )
            if self.bias:
                torch.addmm(weight[:, -1:], weight[:, :-1], x.T, out=room)
            else:
                torch.mm(weight, x.T, out=room)
            outputs = room.view(k, self.outputs, len(x))
            loss, right = self._judged(outputs, y.expand(k, -1))
            losses.append(loss.mean(1) + self.l2 / 2 * (some * some).sum(1))
            accuracies.append(right.to(w.dtype).mean(1))
        return Scores(torch.cat(losses), torch.cat(accuracies))

    def _judged(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of each sample and whether it is classified rightly; may write into `outputs`."""
        return self._loss(outputs, y), self._right(outputs, y)

    def _right(self, outputs: Tensor, y: Tensor) -> Tensor:
        return outputs.max(1).indices == y  # argmax is five times slower across rows


class _SoftmaxLearner(LinearLearner):
    def batch_gradient(
        self, w: Tensor, batches: Batches, buffers: Buffers, keys: Tensor, out: Tensor
    ) -> None:
        backend.softmax_gradient(w, batches, self.outputs, out)
        if self.l2:
            out.add_(w, alpha=self.l2)

    def _slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        return backend.softmax_slope(outputs, y)

    def _loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return torch.logsumexp(outputs, 1) - outputs.gather(1, y[:, None, :]).squeeze(1)

    def _judged(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if outputs.device.type != "cpu":  # to ask whether there are ties would wait for a card
            return super()._judged(outputs, y)
        own, others, rival = _rivals(outputs, y)
        right = _first(own, others, rival, y)
        return softplus(
            others.sub_(rival[:, None]).exp_().sum(1).log_().add_(rival).sub_(own)
        ), right


def _rivals(outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The output of the right class, those of the others (in the memory of `outputs`), and the largest of those."""
    at = y[:, None, :]
    own = outputs.gather(1, at).squeeze(1)
    others = outputs.scatter_(1, at, -math.inf)
    return (
        own,
        others,
        others.amax(1).clamp_min_(torch.finfo(outputs.dtype).min),
    )  # finite where there is but one class


def _first(own: Tensor, others: Tensor, rival: Tensor, y: Tensor) -> Tensor:
    """Whether the right class is the first with the largest output: far faster than to ask which class that is."""
    right = own > rival
    if (tied := own == rival).any():
        right[tied] = y[tied] < others.transpose(1, 2)[tied].max(1).indices
    return right


class _SvmLearner(LinearLearner):
    def _rival(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The margin that is missing, 1 + max_{j≠y} s_j − s_y, and which j and y it is between."""
        own = y[:, None, :]
        rival = outputs.scatter(1, own, -math.inf).max(1, keepdim=True)
        return 1 + rival.values - outputs.gather(1, own), rival.indices, own

    def _slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        missing, rival, own = self._rival(outputs, y)
        wrong = (missing > 0).to(outputs.dtype)
        return outputs.zero_().scatter_add_(1, rival, wrong).scatter_add_(1, own, -wrong)

    def _loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return self._rival(outputs, y)[0].clamp_min(0).squeeze(1)


class _LeastSquaresLearner(LinearLearner):
    def _slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        return outputs.sub_(y[:, None, :])

    def _loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (outputs.squeeze(1) - y).square() / 2

    def _right(self, outputs: Tensor, y: Tensor) -> Tensor:
        return outputs.new_full((len(outputs), 1), math.nan)

    def conjugate(self, z: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """(XᵀX/n + l2·I)·w = z + Xᵀy/n, by Cholesky's factors."""
        n, across = x.shape[1], x.transpose(1, 2)
        curvature = torch.bmm(across, x) / n + self.l2 * torch.eye(
            x.shape[2], dtype=x.dtype, device=x.device
        )
        factor, failed = torch.linalg.cholesky_ex(curvature)
        pivots = factor.diagonal(dim1=1, dim2=2)
        # The square root of what rounding leaves of a pivot that is 0
        lowest = math.sqrt(x.shape[2] * torch.finfo(x.dtype).eps) * pivots.amax(1)
        if failed.any() or (pivots.amin(1) <= lowest).any():
            accepted = (
                "a number above 0, since a device has fewer samples than its loss has curvatures"
            )
            raise InputError("model.l2", self.l2, accepted)
        return torch.cholesky_solve(
            z[:, :, None] + torch.bmm(across, y[:, :, None]) / n, factor
        ).squeeze(2)


class _LogisticLearner(LinearLearner):
    def _slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        return outputs.sigmoid_().sub_(y[:, None, :])

    def _loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return -torch.nn.functional.logsigmoid(outputs.squeeze(1) * (2 * y - 1))

    def _right(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (outputs.squeeze(1) > 0) == (y > 0)


@dataclass(frozen=True)
class _Linear:
    l2: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.l2 < math.inf:
            raise InputError("l2", self.l2, "a number of at least 0")

    def _classes(self, data: Data) -> int:
        if data.classes is None:
            raise InputError(
                "model",
                type(self).__name__.lower(),
                '"least-squares", since the targets are not classes',
            )
        return data.classes


@register("model", "softmax")
@dataclass(frozen=True)
class Softmax(_Linear):
    """Softmax regression with a bias: the paper's LR. `l2` adds l2/2·‖w‖² to the loss."""

    def learner(self, data: Data) -> Learner:
        return _SoftmaxLearner(self._classes(data), math.prod(data.shape), True, self.l2)


@register("model", "svm")
@dataclass(frozen=True)
class Svm(_Linear):
    """The linear SVM with the multi-class hinge of Crammer and Singer: max(0, 1 + max_{j≠y} s_j − s_y)."""

    def learner(self, data: Data) -> Learner:
        return _SvmLearner(self._classes(data), math.prod(data.shape), True, self.l2)


@register("model", "least-squares")
@dataclass(frozen=True)
class LinearRegression(_Linear):
    """Least squares, ½·(⟨w, x⟩ − y)², without a bias."""

    def learner(self, data: Data) -> Learner:
        if data.y.dim() != 1:
            raise InputError(
                "model",
                "least-squares",
                f"a module: each target has shape {list(data.y.shape[1:])}, not one number",
            )
        return _LeastSquaresLearner(1, math.prod(data.shape), False, self.l2)


@register("model", "logistic")
@dataclass(frozen=True)
class LogisticRegression(_Linear):
    """Two classes 0 and 1 by one row of weights, without a bias."""

    def learner(self, data: Data) -> Learner:
        if data.classes != 2:
            raise InputError(
                "model", "logistic", '"softmax", since there are not exactly two classes'
            )
        return _LogisticLearner(1, math.prod(data.shape), False, self.l2)
