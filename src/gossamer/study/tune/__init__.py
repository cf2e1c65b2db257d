"""Choose a method and its settings for a task, a split and a network.

The search is successive halving over rounds and seeds. Every rung keeps the best third of the
settings and runs them three times as long and on one more seed. What is left is confirmed on seeds
and samples that had no part in the search. D-PSGD, the baseline, is tuned beside the others and
more carefully: all its learning rates are run to full length, since the best rate of a short run is
often too large for a long one.

The settings are fixed points that cover the ranges evenly, and `sweep` keeps every run: the same
call gives the same result, and an interrupted search continues where it was. A sampler that learns
from the scores, such as Optuna's, was considered and rejected: it learns from one run after the
other, while here nearly all settings are run at once for a ninth of the rounds, and a method has
only one to three settings to choose.
"""

from gossamer.study.tune.budget import (
    FRESH_SEEDS,
    RATES,
    Rung,
    SearchPlan,
    candidates,
    plan_search,
)
from gossamer.study.tune.scores import COSTS, Cost, Goal, Lead, Score, lead, ranked, reachable
from gossamer.study.tune.search import Tuned, choose, held_out, tune

__all__ = [
    "COSTS",
    "FRESH_SEEDS",
    "RATES",
    "Cost",
    "Goal",
    "Lead",
    "Rung",
    "Score",
    "SearchPlan",
    "Tuned",
    "candidates",
    "choose",
    "held_out",
    "lead",
    "plan_search",
    "ranked",
    "reachable",
    "tune",
]
