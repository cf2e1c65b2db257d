"""Networks from rules: fixed shapes, random graphs, given graphs, and any function of the round."""

from gossamer.network.generators.equitopo import EquiDyn, EquiStatic
from gossamer.network.generators.exponential import Exponential, OnePeerExponential
from gossamer.network.generators.finite_time import BaseGraph, HyperHypercube
from gossamer.network.generators.fixed import Full, Ring, Star, Torus
from gossamer.network.generators.meetings import PoissonMeetings
from gossamer.network.generators.random_graphs import ErdosRenyi, Random, RandomRing, Regular
from gossamer.network.generators.structured import Epidemic, SmallWorld, StochasticBlocks
from gossamer.network.generators.supplied import Callback, Cycle, Graph, from_networkx

__all__ = [
    "BaseGraph",
    "Callback",
    "Cycle",
    "Epidemic",
    "EquiDyn",
    "EquiStatic",
    "ErdosRenyi",
    "Exponential",
    "Full",
    "Graph",
    "HyperHypercube",
    "OnePeerExponential",
    "PoissonMeetings",
    "Random",
    "RandomRing",
    "Regular",
    "Ring",
    "SmallWorld",
    "Star",
    "StochasticBlocks",
    "Torus",
    "from_networkx",
]
