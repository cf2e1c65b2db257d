"""Mixing weights: from the links of a round to the weights a_ij with which models are averaged.

Every rule maps (links, t, seed) to `Weights`, which are symmetric and doubly stochastic except for
`RandomPeer`, `ReceivedMean` and `PushSum`. `WeightRule` describes what rules declare about
themselves.
"""

from gossamer.network.weights.all_links import BestConstant, Laplacian, Metropolis, metropolis
from gossamer.network.weights.base import LinkWeight, PeerWeight, Sums, WeightRule, Weights
from gossamer.network.weights.carried import NetworkWeights
from gossamer.network.weights.pairwise import Matching, OnePair, matching, one_pair
from gossamer.network.weights.push import Clients, PushSum, RandomPeer, ReceivedMean

__all__ = [
    "BestConstant",
    "Clients",
    "Laplacian",
    "LinkWeight",
    "Matching",
    "Metropolis",
    "NetworkWeights",
    "OnePair",
    "PeerWeight",
    "PushSum",
    "RandomPeer",
    "ReceivedMean",
    "Sums",
    "WeightRule",
    "Weights",
    "matching",
    "metropolis",
    "one_pair",
]
