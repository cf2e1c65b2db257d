"""Networks from rules: fixed shapes, random graphs, given graphs, and any function of the round."""

from gossamer.network.generators.fixed import Full, Ring, Star
from gossamer.network.generators.random_graphs import ErdosRenyi, Random, RandomRing, Regular
from gossamer.network.generators.supplied import Callback, Cycle, Graph, from_networkx

__all__ = [
    "Callback",
    "Cycle",
    "ErdosRenyi",
    "Full",
    "Graph",
    "Random",
    "RandomRing",
    "Regular",
    "Ring",
    "Star",
    "from_networkx",
]
