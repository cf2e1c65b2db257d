"""How devices learn together: one file is one paper. An algorithm sees `mix` and `grad`, nothing else."""

from gossamer.algorithms.allreduce import AllReduce
from gossamer.algorithms.amplified import Amplified
from gossamer.algorithms.base import Algorithm, Gradient, Mix, State
from gossamer.algorithms.dpsgd import DPSGD
from gossamer.algorithms.schedules import Cosine, Inverse, InverseSqrt, Schedule, Switch
from gossamer.algorithms.steps import Constant, Matched, Plain, Power, Ratio, Safe, StepRule
from gossamer.algorithms.swarm import SwarmSGD
from gossamer.algorithms.wpm import WPM

__all__ = [
    "DPSGD",
    "WPM",
    "Algorithm",
    "AllReduce",
    "Amplified",
    "Constant",
    "Cosine",
    "Gradient",
    "Inverse",
    "InverseSqrt",
    "Matched",
    "Mix",
    "Plain",
    "Power",
    "Ratio",
    "Safe",
    "Schedule",
    "State",
    "StepRule",
    "SwarmSGD",
    "Switch",
]
