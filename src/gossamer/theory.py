"""The paper's convergence analysis as numbers: Assumption 1, Claims 1 and 2, Lemma 1 and Theorem 1.

Symbols as in the paper, with φ for its w. y_{i,t} is where device i takes its gradient; Y = y^[p] = ∇φ(y) is the dual.

    Y_{t+1} = P(t)·(Y_t - η·g_t),    g_{i,t} ∈ ∂f_{i,t}(y_{i,t}),    Ȳ_t = (1/m)·Σ_i Y_{i,t},    ȳ_t = Ȳ_t^[1/p]

Every f_{i,t} is convex on Rⁿ and G-Lipschitz in the 2-norm, so ‖g‖₂ ≤ G; η is constant (no other rule is covered).
The bounds hold too where a round mixes first, with its first models as `start`: its products have one more factor P.

What is wrong in print. The default is the corrected form; `printed=True` gives the paper's.

- Claim 1 is proved for odd p (by a binomial expansion). It is false for plain even powers (x = -y), but true for signed
  powers and every real p ≥ 1: equal signs by superadditivity, opposite ones by convexity. So is Claim 2, whose φ lacks
  the subscript of its (p+1)-norm. Both fail for p < 1.
- Lemma 1 has no ϑ on the gradient term, bounds ‖g‖₁ by G where √n·G is due, and does not name its left norm: it is the
  p-norm (the proof's last line has that norm's p-th power beside a p-th root). The 2-norm breaks it sooner.
- Theorem 1 has free t and s and undefined ȳ_{i,t} and f; it sums over j what has index i; it states rounds 1…T, proves
  0…T-1; its ‖ȳ_t - ȳ_{t+1}‖ is a (p+1)-norm, against which G does not bound the gradient. The 2 in its second term is
  not needed.
- The update has z_{i,t} in a sum over j (read z_{j,t}); for φ = ½‖x‖² the divergence is ½‖x - y‖², not ‖x - y‖².
"""

from __future__ import annotations

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

SUM_TOLERANCE = 1e-6  # how far a row or column of float32 weights may be from 1


# Assumption 1 ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SmallestB:
    """The smallest B for the paper's blocks (rounds 0…B-1, B…2B-1, …), and for every window of B rounds."""

    aligned: int
    sliding: int


@dataclass(frozen=True)
class Assumption1:
    """What the rounds showed: ζ, B (None: all links together do not connect), the worst row or column sum's error."""

    zeta: float
    b: SmallestB | None
    error: float

    @property
    def holds(self) -> bool:
        return self.zeta > 0 and self.b is not None and self.error <= SUM_TOLERANCE


def smallest_weight(rounds: Iterable[Weights]) -> float:
    """ζ: the smallest own weight and link weight of all rounds. A link of weight 0 counts as no link."""
    return min(float(min(w.own.min(), w.value[w.value != 0].min(initial=1.0))) for w in rounds)


def doubly_stochastic_error(weights: Weights) -> float:
    """How far the worst row sum is from 1, and so the worst column sum: weights are symmetric."""
    at_a = np.bincount(weights.a, weights.value, weights.devices)
    at_b = np.bincount(weights.b, weights.value, weights.devices)
    return float(np.abs(weights.own + at_a + at_b - 1.0).max())


def smallest_b(rounds: Iterable[Links]) -> SmallestB | None:
    """Assumption 1's B: the links of B rounds in a row, taken together, connect all devices (strongly, if directed).

    Only whole blocks and windows within the given rounds count. The bounds use the aligned B. It is not monotone, since
    the blocks move with B, so B = 1, 2, … are tried in turn. None where all rounds together do not connect.

    >>> smallest_b(Links.of(3, [pair]) for pair in [(0, 1), (1, 2), (1, 2), (0, 1)])
    SmallestB(aligned=2, sliding=3)
    """
    edges: list[NDArray[Any]] = []
    devices, directed = 0, False
    for links in rounds:
        devices, directed = links.devices, links.directed
        edges.append(links.pairs if directed else _forest(links))
    if not edges:
        raise InputError("rounds", 0, "at least one round")
    total = len(edges)

    def connected(start: int, end: int) -> bool:
        return _components(devices, np.concatenate(edges[start:end]), directed)[0] == 1

    if not connected(0, total):
        return None
    # reach[t]: the first `end` such that rounds t…end-1 connect. It never falls as t grows: two pointers, both forward.
    reach, end = np.full(total, total + 1), 1
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
    """Assumption 1 over the first rounds of a network, with any of `gossamer.network.weights`.

    `check_assumption1(Ring(10), 50).holds` is True.
    """
    if network.rounds is not None and rounds > network.rounds:
        raise InputError(
            "rounds", rounds, f"at most {network.rounds}, the rounds that the network has"
        )
    zeta, error = 1.0, 0.0

    def used() -> Iterator[Links]:  # one round in memory at a time
        nonlocal zeta, error
        for t in range(rounds):
            w = weights(network.links(t), t, seed)
            zeta = min(zeta, smallest_weight([w]))
            error = max(error, doubly_stochastic_error(w))
            yield Links(w.devices, w.a[w.value != 0], w.b[w.value != 0])

    b = smallest_b(used())
    return Assumption1(zeta, b, error)


def _components(devices: int, pairs: NDArray[Any], directed: bool) -> tuple[int, NDArray[Any]]:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    graph = csr_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(devices, devices))
    count, label = connected_components(graph, directed=directed, connection="strong")
    return int(count), label


def _forest(links: Links) -> NDArray[Any]:
    """Fewer links that connect the same devices: each device to the first of its component."""
    label = _components(links.devices, links.pairs, directed=False)[1]
    first = np.unique(label, return_index=True)[1][label]
    moved = np.flatnonzero(first != np.arange(links.devices))
    return np.stack([first[moved], moved], axis=1)


# Claims 1 and 2 -------------------------------------------------------------------------------------------------------


def divergence(a: ArrayLike, b: ArrayLike, p: float) -> float:
    """D_φ(a, b) = φ(a) - φ(b) - ⟨b^[p], a - b⟩ with φ(x) = ‖x‖_{p+1}^{p+1}/(p+1), summed over all elements.

    >>> divergence([3.0, 0.0], [1.0, 0.0], p=1)
    2.0
    """
    checks.number("p", p, least=1)
    a, b, scale = _scaled(a, b)
    terms = (np.abs(a) ** (p + 1) - np.abs(b) ** (p + 1)) / (p + 1) - _signed_power(b, p) * (a - b)
    return float(_unscaled(terms.sum(), scale, p + 1))


def claim1_gap(x: ArrayLike, y: ArrayLike, p: float) -> FloatArray:
    """Claim 1: |x^[p] - y^[p]| - |x - y|^p/2^(p-1) ≥ 0, element by element, for every real p ≥ 1; 0 where x = -y.

    Its sum is the vector form, ‖∇φ(x) - ∇φ(y)‖₁ - ‖x - y‖_p^p/2^(p-1).

    >>> claim1_gap([2.0, 1.0], [1.0, -1.0], p=3).tolist()
    [6.75, 0.0]
    """
    checks.number("p", p, least=1)
    x, y, scale = _scaled(x, y)
    return _unscaled(
        np.abs(_signed_power(x, p) - _signed_power(y, p)) - 2.0 * (np.abs(x - y) / 2.0) ** p,
        scale,
        p,
    )


def claim2_gap(a: ArrayLike, b: ArrayLike, p: float) -> float:
    """Claim 2: D_φ(a, b) - σ_p/(p+1)·‖a - b‖_{p+1}^{p+1} ≥ 0 with σ_p = 2^(1-p), for every real p ≥ 1.

    >>> claim2_gap([1.0], [-1.0], p=3)
    1.0
    """
    a, b, scale = _scaled(a, b)
    gap = divergence(a, b, p) - 4.0 * ((np.abs(a - b) / 2.0) ** (p + 1)).sum() / (p + 1)
    return float(_unscaled(gap, scale, p + 1))


def _signed_power(x: FloatArray, c: float) -> FloatArray:
    return np.copysign(np.abs(x) ** c, x)


def _scaled(a: ArrayLike, b: ArrayLike) -> tuple[FloatArray, FloatArray, float]:
    """Both divided by a power of two near the largest magnitude (exactly), so that powers of them stay finite."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    scale = float(2.0 ** np.frexp(max(np.abs(a).max(initial=0.0), np.abs(b).max(initial=0.0)))[1])
    return a / scale, b / scale, scale


def _unscaled(value: FloatArray | np.float64 | float, scale: float, power: float) -> FloatArray:
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large is inf, but 0·inf is 0
        return np.where(np.equal(value, 0.0), 0.0, value * np.float64(scale) ** power)


# Lemma 1 and Theorem 1 ------------------------------------------------------------------------------------------------


class Mixing(NamedTuple):
    """|P(t)·…·P(s) - 1/m| ≤ ϑ·κ^(t-s+1), element by element. `gap` is 1 - κ, exact where κ rounds to nearly 1."""

    theta: float
    kappa: float
    gap: float


def mixing_constants(zeta: float, devices: int, b: int) -> Mixing:
    """ϑ = (1 - ζ/4m²)^-2 and κ = (1 - ζ/4m²)^(1/B) from Assumption 1's ζ and (aligned) B, and 1 - κ.

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
    """Lemma 1: no y_{i,t} is further than this from ȳ_t, in the p-norm or (`euclidean`) the 2-norm.

    `start` is y_0 as [devices, n]; `t` a round or an array of them. For r = 1 or 2, by the triangle inequality over
    Y_t = P(t-1)…P(0)·Y_0 - η·Σ_s P(t-1)…P(s)·g_s, with `Mixing` for each product and ‖g‖_r ≤ n^(1/r-1/2)·G,

        ‖Y_{i,t} - Ȳ_t‖_r ≤ ϑ·κ^t·Σ_k ‖Y_{k,0}‖_r + ϑ·m·η·n^(1/r-1/2)·G/(1-κ)

    and Claim 1 puts 2^(1-p)·‖y_{i,t} - ȳ_t‖_{rp}^p below the left side. r = 1 is the paper's proof. r = 2 has no √n
    inside; ‖·‖₂ ≤ n^(1/2-1/2p)·‖·‖_{2p} then gives the 2-norm. As printed (r = 1, no norm named) the gradient term
    has neither ϑ nor √n.
    """
    y = _models(start)
    checks.number("p", p, least=1)
    checks.positive("eta", eta)
    (m, n), r, scale = y.shape, 2 if euclidean and not printed else 1, float(np.abs(y).max()) or 1.0
    gradient = (
        m * eta * lipschitz / mixing.gap * (1.0 if printed else mixing.theta * n ** (1 / r - 0.5))
    )
    norms = ((np.abs(y) / scale) ** (r * p)).sum(axis=1) ** (
        1 / r
    )  # ‖Y_k‖_r = ‖y_k‖_{rp}^p, which alone may overflow
    with np.errstate(divide="ignore"):  # log 0 = -inf: a start at 0, or flat losses
        log_start = (
            np.log(mixing.theta * norms.sum())
            + p * np.log(scale)
            + np.multiply(t, np.log1p(-mixing.gap))
        )
        root = 2.0 ** (1 - 1 / p) * np.exp(np.logaddexp(log_start, np.log(gradient)) / p)
    return np.asarray(root * n ** (0.5 - 0.5 / p) if r == 2 else root)


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
    """Theorem 1: a bound on the regret against `optimum` (any x), the mean over rounds t = 0…T-1 and devices i of

        f_{i,t}(y_{i,t}) - f_{i,t}(x)    at="own":     each loss at its device's own model     c = 1
        f_{i,t}(ȳ_t)     - f_{i,t}(x)    at="mean":    all losses at the power mean            c = 2, the paper's
        f_{i,t}(y_{j,t}) - f_{i,t}(x)    at="device":  all losses at one device j's model      c = 3

    The first is at most ⟨g_{i,t}, ȳ_t - x⟩ + G·‖y_{i,t} - ȳ_t‖₂; each move of the point costs G·‖y - ȳ‖₂ more: hence c.
    With ḡ = (1/m)·Σ_i g_i and Ȳ_{t+1} = Ȳ_t - η·ḡ_t, the mean over i of the inner product is, by the three-point
    identity, (D(x, ȳ_t) - D(x, ȳ_{t+1}) + D(ȳ_t, ȳ_{t+1}))/η. The first two telescope. For the third, let
    Δ = ‖ȳ_t - ȳ_{t+1}‖_{p+1} and let H = n^((p-1)/(2p+2))·G, which bounds ḡ in the dual norm, that of (p+1)/p.
    By Claim 2 it is at most η·H·Δ - σ_p/(p+1)·Δ^(p+1) ≤ η·H·p/(p+1)·(η·H/σ_p)^(1/p).
    With H^(1+1/p) = n^(1/2-1/2p)·G^(1+1/p) the regret is at most

        D(x, ȳ_0)/(η·T) + p/(p+1)·n^(1/2-1/2p)·G·(η·G/σ_p)^(1/p) + c·G·(the mean over t of Lemma 1's 2-norm bound)

    and that mean of roots is at most the root with the mean of κ^t in it. The printed form sums over devices, so it is
    divided by m here; its free κ^(t-s) is read as 1, the most it can be.
    """
    y = _models(start)
    checks.number("p", p, least=1)
    checks.number("rounds", rounds, least=1)
    (_, n), log_kappa = y.shape, np.log1p(-mixing.gap)
    scale = np.where(y.any(axis=0), np.abs(y).max(axis=0), 1.0)
    mean = scale * _signed_power(_signed_power(y / scale, p).mean(axis=0), 1 / p)
    # the t at which κ^t is its own mean over the rounds
    t = (
        0.0
        if printed
        else np.log(-np.expm1(rounds * log_kappa) / (rounds * mixing.gap)) / log_kappa
    )
    distance = consensus_bound(
        y, t, p=p, eta=eta, lipschitz=lipschitz, mixing=mixing, euclidean=True, printed=printed
    )
    step = (
        p / (p + 1) * lipschitz * 2.0 ** (1 - 1 / p) * (eta * lipschitz) ** (1 / p)
    )  # σ_p^(-1/p) = 2^(1-1/p)
    step *= 2.0 if printed else n ** (0.5 - 0.5 / p)
    c = {"own": 1, "mean": 2, "device": 3}[at]
    return float(divergence(optimum, mean, p) / (eta * rounds) + step + c * lipschitz * distance)


def best_rate(p: float) -> float:
    """Theorem 1's bound falls as T^best_rate(p), with the best η for each T: η ∝ T^(-p/(p+1)). It gets worse with p.

    A/(η·T) + C·η^(1/p) is least where both terms are of one size. As p grows, η^(1/p) tends to 1 whatever η is.

    >>> best_rate(1), best_rate(3)
    (-0.5, -0.25)
    """
    checks.number("p", p, least=1)
    return -1.0 / (p + 1.0)


def _models(start: ArrayLike) -> FloatArray:
    y = np.asarray(start, dtype=np.float64)
    if y.ndim != 2 or not y.size or not np.isfinite(y).all():
        raise InputError("start", y, "finite models as [devices, n]")
    return y
