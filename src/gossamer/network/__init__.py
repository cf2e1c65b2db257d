"""Networks: who is linked to whom in round t, and the weights by which linked devices average.

>>> network = Random(10, density=0.5) & LinkFailure(0.1) & Churn(leave=0.05, come_back=0.5)
>>> len(network.links(400)) <= 23
True
"""

from __future__ import annotations

from gossamer.network.base import Fault, Faulty, Links, Network
from gossamer.network.consensus import consensus_errors, rounds_to_consensus
from gossamer.network.energy import Energy
from gossamer.network.faults import Churn, GilbertElliott, LinkFailure
from gossamer.network.files import Sequence, save
from gossamer.network.generators import (
    BaseGraph,
    Callback,
    Cycle,
    Epidemic,
    EquiDyn,
    EquiStatic,
    ErdosRenyi,
    Exponential,
    Full,
    Graph,
    HyperHypercube,
    OnePeerExponential,
    PoissonMeetings,
    Random,
    RandomRing,
    Regular,
    Ring,
    SmallWorld,
    Star,
    StochasticBlocks,
    Torus,
    from_networkx,
)
from gossamer.network.inspect import Summary, connected, spectral_gap, summary
from gossamer.network.mobility import Mobility
from gossamer.network.timing import Clock, LogUniform, Timing, TimingTrace
from gossamer.network.traces import (
    ContactLog,
    ContactTrace,
    PositionLog,
    PositionTrace,
    read_contacts,
    read_positions,
)
from gossamer.network.weights import (
    BestConstant,
    Clients,
    Laplacian,
    Matching,
    Metropolis,
    NetworkWeights,
    OnePair,
    PushSum,
    RandomPeer,
    ReceivedMean,
    WeightRule,
    Weights,
    matching,
    metropolis,
    one_pair,
)

__all__ = [
    "BaseGraph",
    "BestConstant",
    "Callback",
    "Churn",
    "Clients",
    "Clock",
    "ContactLog",
    "ContactTrace",
    "Cycle",
    "Energy",
    "Epidemic",
    "EquiDyn",
    "EquiStatic",
    "ErdosRenyi",
    "Exponential",
    "Fault",
    "Faulty",
    "Full",
    "GilbertElliott",
    "Graph",
    "HyperHypercube",
    "Laplacian",
    "LinkFailure",
    "Links",
    "LogUniform",
    "Matching",
    "Metropolis",
    "Mobility",
    "Network",
    "NetworkWeights",
    "OnePair",
    "OnePeerExponential",
    "PoissonMeetings",
    "PositionLog",
    "PositionTrace",
    "PushSum",
    "Random",
    "RandomPeer",
    "RandomRing",
    "ReceivedMean",
    "Regular",
    "Ring",
    "Sequence",
    "SmallWorld",
    "Star",
    "StochasticBlocks",
    "Summary",
    "Timing",
    "TimingTrace",
    "Torus",
    "WeightRule",
    "Weights",
    "connected",
    "consensus_errors",
    "from_networkx",
    "matching",
    "metropolis",
    "one_pair",
    "read_contacts",
    "read_positions",
    "rounds_to_consensus",
    "save",
    "spectral_gap",
    "summary",
]
