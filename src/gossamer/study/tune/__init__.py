"""Choose a method and its settings for a task, a split and a network.

All registered methods that the study can run are searched. The search is successive halving over
rounds and seeds. Every rung runs a third of the settings of the one before for three times as long
and on one more seed: the best of them, and a few new ones beside or beyond the best of each method.
The winner is chosen on these seeds. It is confirmed on seeds and samples that had no part in the
search, beside the best of other methods and the baseline: D-PSGD, or push-sum on one-way links.

The baseline is tuned as carefully as any other method. It has at least as many settings from the
second rung on, and all its learning rates are run to full length, since the best rate of a short
run is often too large for a long one.

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
from gossamer.study.tune.fit import Fit, choose, fit_methods
from gossamer.study.tune.result import Tuned
from gossamer.study.tune.scores import COSTS, Cost, Goal, Lead, Score, lead, ranked, reachable
from gossamer.study.tune.search import SearchStart, held_out, tune

__all__ = [
    "COSTS",
    "FRESH_SEEDS",
    "RATES",
    "Cost",
    "Fit",
    "Goal",
    "Lead",
    "Rung",
    "Score",
    "SearchPlan",
    "SearchStart",
    "Tuned",
    "candidates",
    "choose",
    "fit_methods",
    "held_out",
    "lead",
    "plan_search",
    "ranked",
    "reachable",
    "tune",
]
