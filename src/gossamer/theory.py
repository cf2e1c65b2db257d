"""The convergence analysis of the WPM paper: Assumption 1, Claims 1 and 2, Lemma 1 and Theorem 1.

Symbols are those of the paper, with φ for its w. y_{i,t} is where device i takes its gradient, and
Y = y^[p] = ∇φ(y) is the dual.

    Y_{t+1} = P(t)·(Y_t - η·g_t),    g_{i,t} ∈ ∂f_{i,t}(y_{i,t})
    Ȳ_t = (1/m)·Σ_i Y_{i,t},         ȳ_t = Ȳ_t^[1/p]

Every f_{i,t} is convex on Rⁿ and G-Lipschitz in the 2-norm, so that ‖g‖₂ ≤ G. η is constant; no
other step rule is covered. The bounds also hold where a round mixes first, with its first models
as `start`: its products have one more factor P.

Errors in print. The default of each function is the corrected form; `printed=True` gives the
paper's.

- Claim 1 is proved for odd p (by a binomial expansion). It is false for plain even powers (x = -y),
  but true for signed powers and every real p ≥ 1: for equal signs by superadditivity, for opposite
  signs by convexity. So is Claim 2, whose φ lacks the subscript of its (p+1)-norm. Both fail for
  p < 1.
- Lemma 1 lacks ϑ in the gradient term, bounds ‖g‖₁ by G instead of √n·G, and does not name the norm
  on its left side. That is the p-norm: the last line of the proof has its p-th power beside a p-th
  root. With the 2-norm it fails sooner.
- Theorem 1 has free t and s and undefined ȳ_{i,t} and f. It sums over j what has index i. It states
  rounds 1…T and proves 0…T-1. Its ‖ȳ_t - ȳ_{t+1}‖ is a (p+1)-norm, against which G does not bound
  the gradient. The 2 in its second term is not needed.
- The update has z_{i,t} in a sum over j (read z_{j,t}). For φ = ½‖x‖² the divergence is ½‖x - y‖²,
  not ‖x - y‖².
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gossamer._core import checks
from gossamer.errors import InputError
from gossamer.network.base import Links, Network
from gossamer.network.weights import Weights, metropolis

FloatArray = NDArray[np.float64]

SUM_TOLERANCE = 1e-6  # largest error of the sum of a row or column of float32 weights


# Assumption 1 -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SmallestB:
    """The smallest B of Assumption 1, for two readings.

    Attributes:
        aligned: For the paper's blocks of rounds 0…B-1, B…2B-1, …
        sliding: For every window of B rounds.
    """

    aligned: int
    sliding: int


@dataclass(frozen=True)
class Assumption1:
    """What the rounds of a network show about Assumption 1.

    Attributes:
        zeta: ζ, the smallest weight.
        b: The smallest B; None if all links together do not connect the devices.
        error: Largest difference of the sum of a row or column from 1.
    """

    zeta: float
    b: SmallestB | None
    error: float

    @property
    def holds(self) -> bool:
        """True if the assumption holds in these rounds."""
        return self.zeta > 0 and self.b is not None and self.error <= SUM_TOLERANCE


def smallest_weight(rounds: Iterable[Weights]) -> float:
    """Return ζ, the smallest weight of a link or of a device itself in all rounds.

    Args:
        rounds: The weights of each round. A link of weight 0 counts as no link.
    """
    smallest = math.inf
    for weights in rounds:
        own = weights.own.min()
        link = weights.value[weights.value != 0].min(initial=1.0)
        smallest = min(smallest, float(min(own, link)))
    return smallest


def doubly_stochastic_error(weights: Weights) -> float:
    """Return the largest difference of the sum of a row from 1.

    The weights are symmetric, so that it is also that of a column.

    Args:
        weights: The weights of one round.
    """
    to_a = np.bincount(weights.a, weights.value, weights.devices)
    to_b = np.bincount(weights.b, weights.value, weights.devices)
    return float(np.abs(weights.own + to_a + to_b - 1.0).max())


def smallest_b(rounds: Iterable[Links]) -> SmallestB | None:
    """Return the smallest B such that the links of B consecutive rounds connect all devices.

    Only whole blocks and windows within the given rounds count. The bounds use the aligned B. It is
    not monotone, since the blocks move with B, so that B = 1, 2, … are tried in turn.

    Args:
        rounds: The links of each round. Directed links must connect the devices strongly.

    Returns:
        The smallest B, or None if all rounds together do not connect the devices.

    Raises:
        InputError: If there are no rounds.

    Example:
        >>> smallest_b(Links.of(3, [pair]) for pair in [(0, 1), (1, 2), (1, 2), (0, 1)])
        SmallestB(aligned=2, sliding=3)
    """
    edges: list[NDArray[Any]] = []
    devices = 0
    directed = False
    for links in rounds:
        devices = links.devices
        directed = links.directed
        edges.append(links.pairs if directed else _forest(links))
    if not edges:
        raise InputError("rounds", 0, "at least one round")
    total = len(edges)

    def connected(start: int, end: int) -> bool:
        return _components(devices, np.concatenate(edges[start:end]), directed)[0] == 1

    if not connected(0, total):
        return None
    # reach[t] is the first `end` such that rounds t…end-1 connect all devices. It never decreases
    # with t, so that both only move forward.
    reach = np.full(total, total + 1)
    end = 1
    for t in range(total):
        end = max(end, t + 1)
        while end <= total and not connected(t, end):
            end += 1
        if end > total:
            break
        reach[t] = end

    def smallest(aligned: bool) -> int:
        for b in range(1, total):
            starts = np.arange(0, total - b + 1, b if aligned else 1)
            if (reach[starts] <= starts + b).all():
                return b
        return total

    return SmallestB(smallest(aligned=True), smallest(aligned=False))


def check_assumption1(
    network: Network,
    rounds: int,
    weights: Callable[[Links, int, int], Weights] = metropolis,
    seed: int = 0,
) -> Assumption1:
    """Check Assumption 1 over the first rounds of a network.

    Args:
        network: The network.
        rounds: Number of rounds to check.
        weights: A rule of `gossamer.network.weights`.
        seed: Seed of the weights.

    Returns:
        ζ, B and the error of the sums; `holds` is True if the assumption holds.

    Raises:
        InputError: If the network has fewer rounds.

    Example:
        >>> from gossamer.network import Ring
        >>> check_assumption1(Ring(10), rounds=50).holds
        True
    """
    if network.rounds is not None and rounds > network.rounds:
        accepted = f"at most {network.rounds}, the rounds that the network has"
        raise InputError("rounds", rounds, accepted)
    zeta = 1.0
    error = 0.0

    def used_links() -> Iterator[Links]:  # one round in memory at a time
        nonlocal zeta, error
        for t in range(rounds):
            w = weights(network.links(t), t, seed)
            zeta = min(zeta, smallest_weight([w]))
            error = max(error, doubly_stochastic_error(w))
            yield Links(w.devices, w.a[w.value != 0], w.b[w.value != 0])

    b = smallest_b(used_links())
    return Assumption1(zeta, b, error)


def _components(devices: int, pairs: NDArray[Any], directed: bool) -> tuple[int, NDArray[Any]]:
    """Return the number of connected components, and that of each device."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    graph = csr_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(devices, devices))
    count, label = connected_components(graph, directed=directed, connection="strong")
    return int(count), label


def _forest(links: Links) -> NDArray[Any]:
    """Return fewer links that connect the same devices: each one to the first of its component."""
    label = _components(links.devices, links.pairs, directed=False)[1]
    first = np.unique(label, return_index=True)[1][label]
    moved = np.flatnonzero(first != np.arange(links.devices))
    return np.stack([first[moved], moved], axis=1)


# Claims 1 and 2 -----------------------------------------------------------------------------------


def divergence(a: ArrayLike, b: ArrayLike, p: float) -> float:
    """Return the Bregman divergence D_φ(a, b) = φ(a) - φ(b) - ⟨b^[p], a - b⟩.

    φ(x) = ‖x‖_{p+1}^{p+1}/(p+1), summed over all elements.

    Args:
        a: First argument.
        b: Second argument.
        p: The power, at least 1.

    Example:
        >>> divergence([3.0, 0.0], [1.0, 0.0], p=1)
        2.0
    """
    checks.number("p", p, least=1)
    a, b, scale = _scaled(a, b)
    potential = (np.abs(a) ** (p + 1) - np.abs(b) ** (p + 1)) / (p + 1)
    terms = potential - _signed_power(b, p) * (a - b)
    return float(_unscaled(terms.sum(), scale, p + 1))


def claim1_gap(x: ArrayLike, y: ArrayLike, p: float) -> FloatArray:
    """Return |x^[p] - y^[p]| - |x - y|^p/2^(p-1), element by element.

    By Claim 1 it is ≥ 0 for every real p ≥ 1, and 0 where x = -y. Its sum is the vector form,
    ‖∇φ(x) - ∇φ(y)‖₁ - ‖x - y‖_p^p/2^(p-1).

    Args:
        x: First argument.
        y: Second argument.
        p: The power, at least 1.

    Example:
        >>> claim1_gap([2.0, 1.0], [1.0, -1.0], p=3).tolist()
        [6.75, 0.0]
    """
    checks.number("p", p, least=1)
    x, y, scale = _scaled(x, y)
    dual_distance = np.abs(_signed_power(x, p) - _signed_power(y, p))
    gap = dual_distance - 2.0 * (np.abs(x - y) / 2.0) ** p
    return _unscaled(gap, scale, p)


def claim2_gap(a: ArrayLike, b: ArrayLike, p: float) -> float:
    """Return D_φ(a, b) - σ_p/(p+1)·‖a - b‖_{p+1}^{p+1} with σ_p = 2^(1-p).

    By Claim 2 it is ≥ 0 for every real p ≥ 1.

    Args:
        a: First argument.
        b: Second argument.
        p: The power, at least 1.

    Example:
        >>> claim2_gap([1.0], [-1.0], p=3)
        1.0
    """
    a, b, scale = _scaled(a, b)
    gap = divergence(a, b, p) - 4.0 * ((np.abs(a - b) / 2.0) ** (p + 1)).sum() / (p + 1)
    return float(_unscaled(gap, scale, p + 1))


def _signed_power(x: FloatArray, c: float) -> FloatArray:
    return np.copysign(np.abs(x) ** c, x)


def _scaled(a: ArrayLike, b: ArrayLike) -> tuple[FloatArray, FloatArray, float]:
    """Divide both by a power of two near the largest magnitude, so that powers stay finite.

    The division is exact.
    """
    a = np.asarray(a, dtype=np.float64)
    b = np.asarray(b, dtype=np.float64)
    largest = max(np.abs(a).max(initial=0.0), np.abs(b).max(initial=0.0))
    scale = float(2.0 ** np.frexp(largest)[1])
    return a / scale, b / scale, scale


def _unscaled(value: FloatArray | np.float64 | float, scale: float, power: float) -> FloatArray:
    """Multiply by scale^power; what overflows is inf, but 0·inf is 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(np.equal(value, 0.0), 0.0, value * np.float64(scale) ** power)


# Lemma 1 and Theorem 1 ----------------------------------------------------------------------------


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
    mean = scale * _signed_power(_signed_power(y / scale, p).mean(axis=0), 1 / p)
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
