"""Networks: who is linked to whom in round t, and the weights by which linked devices average.

>>> network = Random(10, density=0.5) & LinkFailure(0.1) & Churn(leave=0.05, come_back=0.5)
>>> len(network.links(400)) <= 23
True
"""

from __future__ import annotations

from gossamer.network.base import Fault, Faulty, Links, Network
from gossamer.network.faults import Churn, GilbertElliott, LinkFailure
from gossamer.network.files import Sequence, save
from gossamer.network.generators import (
    Callback,
    Cycle,
    ErdosRenyi,
    Full,
    Graph,
    Random,
    RandomRing,
    Regular,
    Ring,
    Star,
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
    OnePair,
    PushSum,
    RandomPeer,
    WeightRule,
    Weights,
    matching,
    metropolis,
    one_pair,
)

__all__ = [
    "BestConstant",
    "Callback",
    "Churn",
    "Clients",
    "Clock",
    "ContactLog",
    "ContactTrace",
    "Cycle",
    "ErdosRenyi",
    "Fault",
    "Faulty",
    "Full",
    "GilbertElliott",
    "Graph",
    "Laplacian",
    "LinkFailure",
    "Links",
    "LogUniform",
    "Matching",
    "Metropolis",
    "Mobility",
    "Network",
    "OnePair",
    "PositionLog",
    "PositionTrace",
    "PushSum",
    "Random",
    "RandomPeer",
    "RandomRing",
    "Regular",
    "Ring",
    "Sequence",
    "Star",
    "Summary",
    "Timing",
    "TimingTrace",
    "WeightRule",
    "Weights",
    "connected",
    "from_networkx",
    "matching",
    "metropolis",
    "one_pair",
    "read_contacts",
    "read_positions",
    "save",
    "spectral_gap",
    "summary",
]
