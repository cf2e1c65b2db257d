"""The catalogue: every method by name, with its file, its paper and what it needs; those without a file are recipes of WPM.

Documentation, tuning and the conformance tests read it.

>>> CATALOGUE["quasi-global"].make(eta=0.05).label
'WPM p=1 QG'
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gossamer.algorithms.adom import ADOM
from gossamer.algorithms.allreduce import AllReduce
from gossamer.algorithms.base import Algorithm
from gossamer.algorithms.compression import Compressor, TopK
from gossamer.algorithms.d2 import D2
from gossamer.algorithms.dabmd import DABMD
from gossamer.algorithms.directions import QuasiGlobal, Tracking
from gossamer.algorithms.dpsgd import DPSGD
from gossamer.algorithms.extra import EXTRA
from gossamer.algorithms.fedavg import FedAvg
from gossamer.algorithms.gossip_learning import GossipLearning
from gossamer.algorithms.nids import NIDS
from gossamer.algorithms.push_sum import StochasticGradientPush
from gossamer.algorithms.schedules import InverseSqrt, Schedule, Switch
from gossamer.algorithms.swarm import SwarmSGD
from gossamer.algorithms.wpm import WPM
from gossamer.network.weights import BestConstant, Metropolis, WeightRule

Rate = float | Schedule


def nedic_ozdaglar(eta: float = 0.1) -> DPSGD:
    """The distributed subgradient method: w_i⁺ = Σ_j a_ij·w_j − η/√(1 + t)·d_i(w_i).

    Its paper analyses a constant rate, which with full gradients is D-PSGD; the falling one leads to the optimum.
    """
    return DPSGD(InverseSqrt(eta), "local", "combine-then-adapt")


def xiao_boyd(eta: Rate = 0.01, weights: WeightRule = BestConstant()) -> WPM:  # noqa: B008 - frozen
    """D-PSGD by fast linear averaging: the weights I − α·L, with the best α of each round."""
    return WPM(1, eta, gradient_at="local", weights=weights)


def koloskova(eta: Rate = 0.01, local_steps: int = 4, weights: WeightRule = Metropolis()) -> WPM:  # noqa: B008 - frozen
    """Local steps, then gossip by any weights: the mean of w_j − η·Σ_s d_j."""
    return WPM(1, eta, order="adapt-then-combine", local_steps=local_steps, weights=weights)


def quasi_global(
    eta: Rate = 0.01, beta: float = 0.9, p: float | Schedule = 1, gain: float | Schedule = 1.0
) -> WPM:
    """Quasi-global momentum, adapt-then-combine as its paper has it: QG-DSGDm, the heavy-ball form, with μ = β.

    The Nesterov form, QG-DSGDm-N, is left out.
    """
    return WPM.robust(p, eta, direction=QuasiGlobal(beta), order="adapt-then-combine", gain=gain)


def tracking(eta: Rate = 0.01, p: float | Schedule = 1, gain: float | Schedule = 1.0) -> WPM:
    """Gradient tracking: w⁺ = A·w − η·A·y, where y tracks the mean gradient."""
    return WPM.robust(p, eta, direction=Tracking(), gradient_at="local", gain=gain)


def gain_control(eta: Rate = 0.01, gain: float = 1.05, rounds: int = 20) -> WPM:
    """The control of WPM: D-PSGD whose averaged displacement from the start is multiplied by a gain at first.

    Where few of n devices move a coordinate, the mean divides the move by n and the power mean by n^(1/p): most of what a
    power mean gains is this inflation of the shared displacement. A gain without any power mean gives it too:
    w̄_i = w₀ + gain·(Σ_j a_ij·w_j − w₀) for the first `rounds` rounds.
    """
    return WPM.robust(1, eta, gain=Switch(gain, rounds))


def gain_quasi_global(
    eta: Rate = 0.01, beta: float = 0.9, gain: float = 1.05, rounds: int = 20
) -> WPM:
    """Quasi-global momentum with a gain at first: on one label a device nothing that we tried takes fewer bytes."""
    return quasi_global(eta, beta, gain=Switch(gain, rounds))


def gain_tracking(eta: Rate = 0.01, gain: float = 1.1, rounds: int = 20) -> WPM:
    """Gradient tracking with a gain at first: on one label a device nothing that we tried takes fewer rounds."""
    return tracking(eta, gain=Switch(gain, rounds))


def choco(eta: Rate = 0.01, compress: Compressor = TopK(0.1), pull: float = 0.3) -> WPM:  # noqa: B008 - frozen
    """CHOCO-SGD: a step, then w + γ·Σ_j a_ij·(ŵ_j − ŵ_i), where only C(w − ŵ), the compressed change of ŵ, is sent.

    When links change: ŵ_i is one vector, what every neighbour of the round knows of i, and it moves on in every round,
    whoever listens. So the change is enough for those that i sent to in the round before; any other is sent ŵ_i whole.
    The models are those of the fixed network's equations with the round's weights; sparse, short meetings cost bytes.
    At first ŵ is the start, which all share, as in the authors' code; as printed it is 0.
    """
    return WPM(1, eta, order="adapt-then-combine", compress=compress, pull=pull)


def wpm(eta: Rate = 0.01, p: float | Schedule = 3) -> WPM:
    """The weighted power mean as we recommend it: anchored at the start, with the safe-sign step.

    At a constant p > 1 that step may hold a coordinate at its start where devices pull both ways, however small η is. So
    let p fall to 1 in the end: `wpm(p=Switch(3, 100))`.
    """
    return WPM.robust(p, eta)


def wpm_paper(eta: float = 0.01, p: float = 3) -> WPM:
    """The weighted power mean as it is printed: Algorithm 1 with η = η₀^(1 + p/2)."""
    return WPM.paper(p, eta)


def wpm_quasi_global(
    eta: Rate = 0.01,
    beta: float = 0.9,
    p: float | Schedule = Switch(5, 20),  # noqa: B008 - frozen
) -> WPM:
    """WPM with quasi-global momentum: a power mean while the devices spread out, p falling to 1."""
    return quasi_global(eta, beta, p)


def wpm_tracking(eta: Rate = 0.01, p: float | Schedule = 3) -> WPM:
    """WPM with gradient tracking: the tracked gradient is averaged linearly, the models by their power mean."""
    return tracking(eta, p)


def wpm_local_steps(eta: Rate = 0.01, p: float | Schedule = 3, local_steps: int = 4) -> WPM:
    """WPM with local steps between two power means."""
    return WPM.robust(p, eta, local_steps=local_steps, order="adapt-then-combine")


def wpm_compressed(
    eta: Rate = 0.01,
    p: float | Schedule = 3,
    compress: Compressor = TopK(0.1),  # noqa: B008 - frozen
    pull: float = 0.3,
) -> WPM:
    """WPM that sends compressed changes: w + γ·(M(ŵ) − ŵ), with M the power mean of the neighbourhood."""
    return WPM.robust(p, eta, order="adapt-then-combine", compress=compress, pull=pull)


@dataclass(frozen=True)
class Entry:
    """A method: how it is made, its file in algorithms/, its paper, what it needs.

    Every argument of `make` has a default, and all but ADOM take `eta`. `exact`: by default, at a constant rate and with
    full gradients, it converges to the optimum however much the devices' data differ.
    """

    make: Callable[..., Algorithm]
    file: str
    paper: str
    needs: str = "symmetric links"
    exact: bool = False


_OURS = "ours, after Du et al., WPM"

CATALOGUE: dict[str, Entry] = {
    "d-psgd": Entry(DPSGD, "dpsgd.py", "Lian et al., NeurIPS 2017"),
    "nedic-ozdaglar": Entry(nedic_ozdaglar, "recipes.py", "Nedić and Ozdaglar, IEEE TAC 54, 2009"),
    "xiao-boyd": Entry(
        xiao_boyd,
        "recipes.py",
        "Xiao and Boyd, Systems & Control Letters 53, 2004",
        "symmetric links; all of a round's known",
    ),
    "gossip-learning": Entry(
        GossipLearning,
        "gossip_learning.py",
        "Hegedűs, Danner and Jelasity, JPDC 148, 2021",
        "any links, one-way too",
    ),
    "swarm": Entry(SwarmSGD, "swarm.py", "Nadiradze et al., NeurIPS 2021"),
    "koloskova": Entry(koloskova, "recipes.py", "Koloskova et al., ICML 2020"),
    "all-reduce": Entry(
        AllReduce, "allreduce.py", "centralised reference", "the mean of all devices", exact=True
    ),
    "fedavg": Entry(
        FedAvg, "fedavg.py", "McMahan et al., AISTATS 2017", "a server that all reach", exact=True
    ),
    "choco": Entry(choco, "recipes.py", "Koloskova, Stich and Jaggi, ICML 2019"),
    "quasi-global": Entry(quasi_global, "recipes.py", "Lin et al., ICML 2021"),
    "tracking": Entry(
        tracking,
        "recipes.py",
        "Pu and Nedić, Math. Programming 187, 2021; Pu et al., IEEE TAC 66, 2021",
        exact=True,
    ),
    "adom": Entry(
        ADOM,
        "adom.py",
        "Kovalev et al., ICML 2021",
        "symmetric links, connected in every round; nobody away; least squares over all samples",
        exact=True,
    ),
    "dabmd": Entry(DABMD, "dabmd.py", "Eshraghi and Liang, ICML 2020"),
    "push-sum": Entry(
        StochasticGradientPush,
        "push_sum.py",
        "Assran et al., ICML 2019; Nedić and Olshevsky, 2015",
        "any links, one-way too",
    ),
    "extra": Entry(
        EXTRA,
        "extra.py",
        "Shi et al., SIAM J. Optimization 25, 2015",
        "static symmetric links",
        exact=True,
    ),
    "d2": Entry(
        D2,
        "d2.py",
        "Tang et al., ICML 2018",
        "static symmetric links, eigenvalues above -1/3",
        exact=True,
    ),
    "nids": Entry(
        NIDS, "nids.py", "Li, Shi and Yan, IEEE TSP 67, 2019", "static symmetric links", exact=True
    ),
    "wpm": Entry(wpm, "wpm.py", "Du et al.; anchored, safe sign"),
    "wpm-paper": Entry(wpm_paper, "wpm.py", "Du et al., as printed"),
    "gain-control": Entry(gain_control, "recipes.py", "ours, the control of WPM"),
    "gain-quasi-global": Entry(gain_quasi_global, "recipes.py", "ours, after Lin et al."),
    "gain-tracking": Entry(gain_tracking, "recipes.py", "ours, after Pu et al.", exact=True),
    "wpm-quasi-global": Entry(wpm_quasi_global, "recipes.py", _OURS),
    "wpm-tracking": Entry(wpm_tracking, "recipes.py", _OURS, exact=True),
    "wpm-local-steps": Entry(wpm_local_steps, "recipes.py", _OURS),
    "wpm-compressed": Entry(wpm_compressed, "recipes.py", _OURS),
}
