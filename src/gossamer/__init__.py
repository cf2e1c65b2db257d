"""gossamer: train one model across devices that meet when they can. No server, links that come and go.

    >>> import gossamer as gs
    >>> study = gs.Study(gs.WPM.robust(p=15, eta=0.05), gs.Random(devices=10, density=0.2), split=gs.OneLabel())
    >>> gs.run(study).summary["accuracy"]                      # doctest: +SKIP
    0.93

Names are loaded when they are first used: `import gossamer` brings neither torch nor anything else that is heavy.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.2.0"  # the only place: pyproject.toml reads it from here

_ROOMS = {
    "algorithms": "WPM DPSGD SwarmSGD AllReduce FedAvg GossipLearning StochasticGradientPush EXTRA D2 NIDS ADOM DABMD "
    "CATALOGUE Algorithm Constant Power Matched Safe Plain Ratio InverseSqrt "
    "Inverse Cosine Switch Steepest Momentum QuasiGlobal Tracking TopK RandomK Quantised "
    "Guarded Clip TrimmedMean Median Checked Broken",
    "network": "Network Links Random Full Ring RandomRing ErdosRenyi Regular Star Mobility Cycle Graph Callback Sequence "
    "ContactTrace PositionTrace Timing LogUniform TimingTrace LinkFailure GilbertElliott Churn from_networkx metropolis "
    "Metropolis Laplacian BestConstant OnePair Matching RandomPeer",
    "tasks": "Task Data Digits Mnist FashionMnist Cifar10 Arrays from_arrays from_dataset Iid OneLabel Labels Dirichlet Uneven "
    "Drawn Lists from_lists Validation Softmax Svm Mlp Cnn Module LinearRegression LogisticRegression",
    "tasks.synthetic": "LeastSquares Logistic",
    "engines": "Measure Observer Plan Ray Simulator",
    "results.run": "Run",
    "study": "Study run compare",
    "mirror": "signed_power power_mean PowerMap bregman",
    "errors": "GossamerError InputError DataError Diverged",
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names.split()}

__all__ = sorted(_ROOM_OF)


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'gossamer' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"gossamer.{_ROOM_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
