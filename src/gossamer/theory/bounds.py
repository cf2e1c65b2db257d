"""The bounds of Lemma 1 and Theorem 1."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from gossamer._core import checks
from gossamer.errors import InputError
from gossamer.theory.claims import FloatArray, divergence, signed_power


class Mixing(NamedTuple):
    """Constants of |P(t)·…·P(s) - 1/m| ≤ ϑ·κ^(t-s+1), element by element.

    Attributes:
        theta: ϑ.
        kappa: κ.
        gap: 1 - κ, exact where κ rounds to nearly 1.
    """

    theta: float
    kappa: float
    gap: float


def mixing_constants(zeta: float, devices: int, b: int) -> Mixing:
    """Return ϑ = (1 - ζ/4m²)^-2, κ = (1 - ζ/4m²)^(1/B), and 1 - κ.

    Args:
        zeta: ζ of Assumption 1, the smallest weight.
        devices: Number of devices m.
        b: B of Assumption 1 (aligned).

    Example:
        >>> mixing_constants(0.5, devices=1, b=1).kappa
        0.875
    """
    checks.number("zeta", zeta, above=0, most=1, noun="a weight")
    checks.number("devices", devices, least=1)
    checks.number("b", b, least=1)
    x = zeta / (4.0 * devices**2)
    log_kappa = np.log1p(-x) / b
    return Mixing((1.0 - x) ** -2, float(np.exp(log_kappa)), float(-np.expm1(log_kappa)))


def consensus_bound(
    start: ArrayLike,
    t: ArrayLike,
    *,
    p: float,
    eta: float,
    lipschitz: float,
    mixing: Mixing,
    euclidean: bool = False,
    printed: bool = False,
) -> FloatArray:
    """Return Lemma 1's bound on the distance of any y_{i,t} from ȳ_t.

    For r = 1 or 2, by the triangle inequality over

        Y_t = P(t-1)…P(0)·Y_0 - η·Σ_s P(t-1)…P(s)·g_s

    with `Mixing` for each product and ‖g‖_r ≤ n^(1/r-1/2)·G,

        ‖Y_{i,t} - Ȳ_t‖_r ≤ ϑ·κ^t·Σ_k ‖Y_{k,0}‖_r + ϑ·m·η·n^(1/r-1/2)·G/(1-κ)

    and Claim 1 bounds 2^(1-p)·‖y_{i,t} - ȳ_t‖_{rp}^p by the left side. r = 1 is the paper's proof.
    r = 2 has no √n inside; ‖·‖₂ ≤ n^(1/2-1/2p)·‖·‖_{2p} then gives the 2-norm. As printed (r = 1,
    no norm named) the gradient term has neither ϑ nor √n.

    Args:
        start: y_0 as [devices, n].
        t: A round, or an array of rounds.
        p: The power, at least 1.
        eta: The step size η.
        lipschitz: The constant G.
        mixing: ϑ and κ, from `mixing_constants`.
        euclidean: True for the 2-norm, False for the p-norm.
        printed: True for the bound as printed.

    Returns:
        The bound at each round.

    Example:
        >>> mixing = mixing_constants(0.5, devices=2, b=1)
        >>> bound = consensus_bound([[1.0], [3.0]], 0, p=1, eta=0.1, lipschitz=0.0, mixing=mixing)
        >>> float(bound) >= 1.0
        True
    """
    y = _models(start)
    checks.number("p", p, least=1)
    checks.positive("eta", eta)
    m, n = y.shape
    r = 2 if euclidean and not printed else 1
    scale = float(np.abs(y).max()) or 1.0
    gradient_factor = 1.0 if printed else mixing.theta * n ** (1 / r - 0.5)
    gradient = m * eta * lipschitz / mixing.gap * gradient_factor
    # ‖Y_k‖_r = ‖y_k‖_{rp}^p, which may overflow without the scale.
    norms = ((np.abs(y) / scale) ** (r * p)).sum(axis=1) ** (1 / r)
    with np.errstate(divide="ignore"):  # log 0 = -inf: a start at 0, or constant losses
        log_start = (
            np.log(mixing.theta * norms.sum())
            + p * np.log(scale)
            + np.multiply(t, np.log1p(-mixing.gap))
        )
        root = 2.0 ** (1 - 1 / p) * np.exp(np.logaddexp(log_start, np.log(gradient)) / p)
    if r == 2:
        root = root * n ** (0.5 - 0.5 / p)
    return np.asarray(root)


def regret_bound(
    start: ArrayLike,
    optimum: ArrayLike,
    rounds: int,
    *,
    p: float,
    eta: float,
    lipschitz: float,
    mixing: Mixing,
    at: Literal["own", "mean", "device"] = "mean",
    printed: bool = False,
) -> float:
    """Return Theorem 1's bound on the regret against `optimum` (any x).

    The regret is the mean over rounds t = 0…T-1 and devices i of

        f_{i,t}(y_{i,t}) - f_{i,t}(x)    at="own":     each loss at its device's own model   c = 1
        f_{i,t}(ȳ_t)     - f_{i,t}(x)    at="mean":    all losses at the power mean          c = 2
        f_{i,t}(y_{j,t}) - f_{i,t}(x)    at="device":  all losses at one device j's model    c = 3

    of which the second is the paper's. The first is at most ⟨g_{i,t}, ȳ_t - x⟩ +
    G·‖y_{i,t} - ȳ_t‖₂; each move of the point costs G·‖y - ȳ‖₂ more: hence c.

    With ḡ = (1/m)·Σ_i g_i and Ȳ_{t+1} = Ȳ_t - η·ḡ_t, the mean over i of the inner product is, by
    the three-point identity, (D(x, ȳ_t) - D(x, ȳ_{t+1}) + D(ȳ_t, ȳ_{t+1}))/η. The first two terms
    telescope. For the third, let Δ = ‖ȳ_t - ȳ_{t+1}‖_{p+1} and H = n^((p-1)/(2p+2))·G, which
    bounds ḡ in the dual norm, that of (p+1)/p. By Claim 2 it is at most
    η·H·Δ - σ_p/(p+1)·Δ^(p+1) ≤ η·H·p/(p+1)·(η·H/σ_p)^(1/p). With
    H^(1+1/p) = n^(1/2-1/2p)·G^(1+1/p) the regret is at most

        D(x, ȳ_0)/(η·T) + p/(p+1)·n^(1/2-1/2p)·G·(η·G/σ_p)^(1/p)
        + c·G·(the mean over t of Lemma 1's 2-norm bound)

    and that mean of roots is at most the root with the mean of κ^t in it. The printed form sums
    over devices, so that it is divided by m here; its free κ^(t-s) is read as 1, the most it can
    be.

    Args:
        start: y_0 as [devices, n].
        optimum: The point x that the regret compares with.
        rounds: Number of rounds T.
        p: The power, at least 1.
        eta: The step size η.
        lipschitz: The constant G.
        mixing: ϑ and κ, from `mixing_constants`.
        at: Where the losses are evaluated, as above.
        printed: True for the bound as printed.

    Returns:
        The bound.

    Example:
        >>> mixing = mixing_constants(0.5, devices=2, b=1)
        >>> regret_bound([[1.0], [1.0]], [0.0], 10, p=1, eta=0.1, lipschitz=1.0, mixing=mixing) > 0
        True
    """
    y = _models(start)
    checks.number("p", p, least=1)
    checks.number("rounds", rounds, least=1)
    n = y.shape[1]
    log_kappa = np.log1p(-mixing.gap)
    scale = np.where(y.any(axis=0), np.abs(y).max(axis=0), 1.0)
    mean = scale * signed_power(signed_power(y / scale, p).mean(axis=0), 1 / p)
    t = 0.0
    if not printed:  # the t at which κ^t is its own mean over the rounds
        t = np.log(-np.expm1(rounds * log_kappa) / (rounds * mixing.gap)) / log_kappa
    distance = consensus_bound(
        y, t, p=p, eta=eta, lipschitz=lipschitz, mixing=mixing, euclidean=True, printed=printed
    )
    # σ_p^(-1/p) = 2^(1-1/p)
    step = p / (p + 1) * lipschitz * 2.0 ** (1 - 1 / p) * (eta * lipschitz) ** (1 / p)
    step *= 2.0 if printed else n ** (0.5 - 0.5 / p)
    c = {"own": 1, "mean": 2, "device": 3}[at]
    return float(divergence(optimum, mean, p) / (eta * rounds) + step + c * lipschitz * distance)


def best_rate(p: float) -> float:
    """Return the exponent with which Theorem 1's bound decreases: it is ∝ T^best_rate(p).

    That is with the best η for each T, η ∝ T^(-p/(p+1)): A/(η·T) + C·η^(1/p) is smallest where both
    terms are of the same size. As p grows, η^(1/p) tends to 1 for every η, so that the rate gets
    worse with p.

    Args:
        p: The power, at least 1.

    Example:
        >>> best_rate(1), best_rate(3)
        (-0.5, -0.25)
    """
    checks.number("p", p, least=1)
    return -1.0 / (p + 1.0)


def _models(start: ArrayLike) -> FloatArray:
    """Return models as [devices, n], after checking them."""
    y = np.asarray(start, dtype=np.float64)
    if y.ndim != 2 or not y.size or not np.isfinite(y).all():
        raise InputError("start", y, "finite models as [devices, n]")
    return y
