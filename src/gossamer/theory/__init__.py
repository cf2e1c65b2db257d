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

from gossamer.theory.assumption1 import (
    Assumption1,
    SmallestB,
    check_assumption1,
    doubly_stochastic_error,
    smallest_b,
    smallest_weight,
)
from gossamer.theory.bounds import (
    Mixing,
    best_rate,
    consensus_bound,
    mixing_constants,
    regret_bound,
)
from gossamer.theory.claims import claim1_gap, claim2_gap, divergence

__all__ = [
    "Assumption1",
    "Mixing",
    "SmallestB",
    "best_rate",
    "check_assumption1",
    "claim1_gap",
    "claim2_gap",
    "consensus_bound",
    "divergence",
    "doubly_stochastic_error",
    "mixing_constants",
    "regret_bound",
    "smallest_b",
    "smallest_weight",
]
