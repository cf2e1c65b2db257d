"""How devices learn together: one file is one paper. An algorithm sees `mix` and `grad`, nothing else."""

from gossamer.algorithms.adom import ADOM
from gossamer.algorithms.allreduce import AllReduce
from gossamer.algorithms.base import Algorithm, Gradient, Mix, Neighbours, State
from gossamer.algorithms.broken import Broken
from gossamer.algorithms.compression import Compressor, Quantised, RandomK, TopK
from gossamer.algorithms.d2 import D2
from gossamer.algorithms.dabmd import DABMD
from gossamer.algorithms.directions import Direction, Momentum, QuasiGlobal, Steepest, Tracking
from gossamer.algorithms.dpsgd import DPSGD
from gossamer.algorithms.extra import EXTRA
from gossamer.algorithms.fedavg import FedAvg
from gossamer.algorithms.gossip_learning import GossipLearning
from gossamer.algorithms.nids import NIDS
from gossamer.algorithms.push_sum import StochasticGradientPush
from gossamer.algorithms.recipes import CATALOGUE, Entry
from gossamer.algorithms.robust import Checked, Clip, Guarded, Median, MixRule, TrimmedMean
from gossamer.algorithms.schedules import Cosine, Inverse, InverseSqrt, Schedule, Switch
from gossamer.algorithms.steps import Constant, Matched, Plain, Power, Ratio, Safe, StepRule
from gossamer.algorithms.swarm import SwarmSGD
from gossamer.algorithms.wpm import WPM

__all__ = [
    "ADOM",
    "CATALOGUE",
    "D2",
    "DABMD",
    "DPSGD",
    "EXTRA",
    "NIDS",
    "WPM",
    "Algorithm",
    "AllReduce",
    "Broken",
    "Checked",
    "Clip",
    "Compressor",
    "Constant",
    "Cosine",
    "Direction",
    "Entry",
    "FedAvg",
    "GossipLearning",
    "Gradient",
    "Guarded",
    "Inverse",
    "InverseSqrt",
    "Matched",
    "Median",
    "Mix",
    "MixRule",
    "Momentum",
    "Neighbours",
    "Plain",
    "Power",
    "Quantised",
    "QuasiGlobal",
    "RandomK",
    "Ratio",
    "Safe",
    "Schedule",
    "State",
    "Steepest",
    "StepRule",
    "StochasticGradientPush",
    "SwarmSGD",
    "Switch",
    "TopK",
    "Tracking",
    "TrimmedMean",
]
