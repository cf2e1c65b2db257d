"""The speed of this machine: how long a round takes, where its time goes, and what to set."""

from gossamer.study.bench.advice import Advice, advice, gains_from
from gossamer.study.bench.measure import measure
from gossamer.study.bench.result import (
    BATCH,
    MODELS,
    NEIGHBOURS,
    PARTS,
    POWERS,
    Bench,
    Evaluation,
    Parts,
    PowerCost,
    Speed,
    Threads,
)

__all__ = [
    "BATCH",
    "MODELS",
    "NEIGHBOURS",
    "PARTS",
    "POWERS",
    "Advice",
    "Bench",
    "Evaluation",
    "Parts",
    "PowerCost",
    "Speed",
    "Threads",
    "advice",
    "gains_from",
    "measure",
]
