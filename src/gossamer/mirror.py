"""Mirror maps, and the power mean.

    x^[c] = sgn(x)·|x|^c            signed power, element by element, any real c > 0
    z     = w^[p] = ∇φ(w)           the dual of a model w, φ(w) = ‖w‖_{p+1}^{p+1} / (p+1)
    w̄     = (Σ_j a_j·w_j^[p])^[1/p]   the weighted power-p mean

`SinhMap` and `ArcsinhMap` are mirror maps that are no powers: the first weighs large elements more,
as a power p > 1 does, the second less. Both are the identity for elements well below their scale.

At p = 15 the dual of a float32 weight below 0.003 underflows to zero. Duals are therefore float64,
which holds every weight from 1e-8 to 1e4 up to p = 35. `power_mean` must hold for any p: it divides
each coordinate by its largest |w_j| first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer import backend
from gossamer._core import checks
from gossamer._core.arguments import checked
from gossamer._core.registry import register
from gossamer.backend.powers import block_columns, dual_fits, root, signed_power_, within
from gossamer.errors import InputError

_MAX_POWER = 1_000_000  # far beyond it, p times a step is no longer a float32


@checked
def signed_power(x: Tensor, c: float) -> Tensor:
    """Return x^[c] = sgn(x)·|x|^c in the type of x. Signed zeros and NaN are kept.

    Args:
        x: Any tensor.
        c: The exponent, any real number above 0.

    Example:
        >>> signed_power(torch.tensor([-2.0, 0.0, 3.0]), 2)
        tensor([-4.,  0.,  9.])
    """
    checks.positive("c", c)
    return signed_power_(x.clone(), c)


class MirrorMap(ABC):
    """A mirror map ∇φ and its inverse, element by element.

    Models are averaged in its dual: w̄ = ∇φ⁻¹(Σ_j a_j·∇φ(w_j)). Subclasses are frozen dataclasses.

    Example:
        A map of one's own is two functions:

        >>> class Sinh(MirrorMap):
        ...     def to_dual(self, w):
        ...         return torch.sinh(w.double())
        ...     def to_primal(self, z, dtype=None):
        ...         return torch.asinh(z).to(dtype or z.dtype)
    """

    @property
    def power(self) -> float | None:
        """The exponent p of a power map w^[p], for which there is faster code; None for others."""
        return None

    @property
    def label(self) -> str:
        """A short name for tables and legends."""
        return type(self).__name__

    @abstractmethod
    def to_dual(self, w: Tensor) -> Tensor:
        """Return the dual z = ∇φ(w)."""

    @abstractmethod
    def to_primal(self, z: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Return the model w = ∇φ⁻¹(z), in the given type or that of z."""

    def mean(self, models: Tensor) -> Tensor:
        """Return the mean of the rows of models [k, …] in the dual."""
        return self.to_primal(self.to_dual(models).mean(0), models.dtype)


@register("mirror", "identity")
@dataclass(frozen=True)
class IdentityMap(MirrorMap):
    """The mirror map of φ(w) = ‖w‖²/2: the dual is the model, the mean the arithmetic mean."""

    @property
    def power(self) -> float | None:
        return 1.0

    @property
    def label(self) -> str:
        return ""

    def to_dual(self, w: Tensor) -> Tensor:
        return w

    def to_primal(self, z: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        return z.to(dtype or z.dtype)


@register("mirror", "power")
@dataclass(frozen=True)
class PowerMap(MirrorMap):
    """The mirror map w^[p] of φ(w) = ‖w‖_{p+1}^{p+1}/(p+1); p = 1 is the identity.

    Args:
        p: The exponent, at least 1.

    Example:
        >>> PowerMap(3).to_primal(PowerMap(3).to_dual(torch.tensor([0.5, -2.0])), torch.float32)
        tensor([ 0.5000, -2.0000])
    """

    p: float

    def __post_init__(self) -> None:
        check_p(self.p)

    @property
    def power(self) -> float | None:
        return float(self.p)

    @property
    def label(self) -> str:
        return f"p={self.p:g}"

    def mean(self, models: Tensor) -> Tensor:
        if self.p == 1:
            return models.mean(0)
        equal = torch.full((len(models),), 1 / len(models), dtype=torch.float64)
        return power_mean(models, equal, self.p)

    def to_dual(self, w: Tensor) -> Tensor:
        """Return z = w^[p], in float64 unless p = 1."""
        if self.p == 1:
            return w
        return signed_power_(w.to(torch.float64, copy=True), self.p)

    def to_primal(self, z: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Return w = z^[1/p]."""
        dtype = dtype or z.dtype
        if self.p == 1:
            return z.to(dtype)
        return backend.roots(z, self.p, dtype)

    def fits(self, w: Tensor) -> Tensor:
        """Return a mask of the elements that are zero or whose dual is well inside float64."""
        return dual_fits(w, self.p)


@register("mirror", "sinh")
@dataclass(frozen=True)
class SinhMap(MirrorMap):
    """The mirror map s·sinh(w/s) of φ(w) = Σ s²·cosh(w/s): linear below s, exponential above.

    Its mean tends to the arithmetic mean for elements far below s, and to the largest element for
    those far above. Unlike that of a power p > 1, φ is strongly convex, so that a step of one
    length for all coordinates is defined at 0 too. The dual of |w| > 700·s exceeds float64: a run
    that gets there diverges.

    Args:
        scale: s, above 0, in units of the weights.

    Example:
        >>> SinhMap(0.1).mean(torch.tensor([[0.0, 0.001], [1.0, 0.003]]))
        tensor([0.9307, 0.0020])
    """

    scale: float

    def __post_init__(self) -> None:
        checks.positive("scale", self.scale)

    @property
    def label(self) -> str:
        return f"sinh {self.scale:g}"

    def to_dual(self, w: Tensor) -> Tensor:
        """Return z = s·sinh(w/s) in float64."""
        return torch.sinh(w.double() / self.scale).mul_(self.scale)

    def to_primal(self, z: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Return w = s·arcsinh(z/s)."""
        return torch.asinh(z.double() / self.scale).mul_(self.scale).to(dtype or z.dtype)


@register("mirror", "arcsinh")
@dataclass(frozen=True)
class ArcsinhMap(MirrorMap):
    """The mirror map s·arcsinh(w/s), the hypentropy: linear below s, logarithmic above.

    U. Ghai, E. Hazan, Y. Singer. "Exponentiated gradient meets gradient descent." ALT 2020. Its
    mean tends to the arithmetic mean for elements far below s, and to the geometric mean for those
    far above, and steps there are relative to |w|.

    Args:
        scale: s, above 0, in units of the weights; β of the paper.

    Example:
        >>> ArcsinhMap(0.1).mean(torch.tensor([[1.0], [9.0]]))
        tensor([3.0030])
    """

    scale: float

    def __post_init__(self) -> None:
        checks.positive("scale", self.scale)

    @property
    def label(self) -> str:
        return f"arcsinh {self.scale:g}"

    def to_dual(self, w: Tensor) -> Tensor:
        """Return z = s·arcsinh(w/s) in float64."""
        return torch.asinh(w.double() / self.scale).mul_(self.scale)

    def to_primal(self, z: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Return w = s·sinh(z/s)."""
        return torch.sinh(z.double() / self.scale).mul_(self.scale).to(dtype or z.dtype)


def power_map(p: float) -> MirrorMap:
    """Return the mirror map for an exponent: the identity for p = 1.

    Args:
        p: The exponent, at least 1.

    Example:
        >>> power_map(1), power_map(3)
        (IdentityMap(), PowerMap(p=3))
    """
    return IdentityMap() if p == 1 else PowerMap(p)


def inside_float32(z: Tensor) -> bool:
    """True if every element is zero or well inside the range of float32.

    Args:
        z: A dual.
    """
    return bool(within(z.abs(), 1e-30, 1e30).all())


@checked
def power_mean(models: Tensor, weights: Tensor, p: float) -> Tensor:
    """Return the weighted power-p mean of models.

    Accurate for any real p >= 1 and any magnitudes: each coordinate is divided by the largest |w_j|
    with a nonzero weight, summed in float64, and multiplied back.

    Args:
        models: Tensor [k, …].
        weights: Tensor [k] for one mean, or [n, k] for n means at once.
        p: The exponent, at least 1.

    Returns:
        Tensor […] or [n, …]. NaN or infinity in a model with a nonzero weight gives NaN.

    Example:
        >>> power_mean(torch.tensor([[1.0], [2.0]]), torch.tensor([0.5, 0.5]), 3)
        tensor([1.6510])
    """
    check_p(p)
    if not models.dim() or not len(models):
        raise InputError("models", tuple(models.shape), "at least one model")
    if weights.dim() not in (1, 2) or weights.shape[-1] != models.shape[0]:
        raise InputError(
            "weights", tuple(weights.shape), f"shape [{models.shape[0]}] or [n, {models.shape[0]}]"
        )
    if weights.dim() == 2:
        rows = [power_mean(models, row, p) for row in weights]
        return torch.stack(rows) if rows else models.new_empty((0, *models.shape[1:]))
    held = weights != 0
    kept = models[held]
    shares = weights[held].double()
    if not len(kept):
        return torch.zeros_like(models[0])
    if p == 1:
        return torch.tensordot(shares, kept.double(), dims=1).to(models.dtype)
    result = models.new_empty(models.shape[1:])
    width = block_columns(len(kept))
    columns = kept.reshape(len(kept), -1).split(width, -1)
    for x, out in zip(columns, result.view(-1).split(width), strict=True):
        out.copy_(_scaled_mean(x.double(), shares, p))
    return result


def _scaled_mean(x: Tensor, shares: Tensor, p: float) -> Tensor:
    """Return the power mean of float64 rows [k, n], scaled by each column's largest element."""
    scale = x.abs().amax(0)
    scale = torch.where(scale == 0, 1.0, scale)
    return root(shares @ signed_power(x / scale, p), p) * scale


@checked
def bregman(a: Tensor, b: Tensor, p: float) -> Tensor:
    """Return the Bregman divergence D_φ(a, b) = φ(a) − φ(b) − ⟨∇φ(b), a − b⟩ of the power map.

    Args:
        a: Tensor […, n].
        b: Tensor […, n].
        p: The exponent of the power map, at least 1.

    Returns:
        Tensor […] in float64, never negative.

    Example:
        Half the squared distance for p = 1:

        >>> bregman(torch.tensor([3.0]), torch.tensor([1.0]), 1)
        tensor(2., dtype=torch.float64)
    """
    check_p(p)
    try:
        a, b = torch.broadcast_tensors(a.double(), b.double())
    except RuntimeError:
        accepted = f"a tensor whose shape goes with {list(a.shape)}, that of a"
        raise InputError("b", f"a tensor of shape {list(b.shape)}", accepted) from None
    if p == 1:
        return (a - b).square().sum(-1) / 2
    # The divergence of a/s and b/s is s^-(p+1) times that of a and b.
    s = torch.maximum(a.abs(), b.abs())
    scale = torch.where(s == 0, 1.0, s)
    a = a / scale
    b = b / scale
    terms = (a.abs() ** (p + 1) + p * b.abs() ** (p + 1)) / (p + 1) - signed_power(b, p) * a
    # Two factors, since s^p alone may overflow where the divergence does not.
    half = s ** (p / 2)
    return (terms.clamp_min(0) * half * s * half).sum(-1)


def check_p(p: float) -> None:
    """Raise InputError if p is not a number from 1 to 1e6.

    Args:
        p: The exponent.
    """
    checks.number("p", p, least=1)
    checks.number("p", p, most=_MAX_POWER)
