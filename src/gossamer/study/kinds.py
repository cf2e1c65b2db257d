"""What a spec can name: the kinds of every section, and the dataclasses behind them."""

from __future__ import annotations

from collections.abc import Callable

from gossamer import algorithms, engines, network, tasks
from gossamer.tasks import splits, synthetic

KINDS: dict[str, dict[str, type]] = {
    "data": {
        "digits": tasks.Digits,
        "mnist": tasks.Mnist,
        "fashion-mnist": tasks.FashionMnist,
        "cifar10": tasks.Cifar10,
        "arrays": tasks.Arrays,
        "validation": tasks.Validation,
        "least-squares": synthetic.LeastSquares,
        "logistic": synthetic.Logistic,
    },
    "split": {
        "iid": splits.Iid,
        "one-label": splits.OneLabel,
        "labels": splits.Labels,
        "dirichlet": splits.Dirichlet,
        "uneven": splits.Uneven,
        "drawn": splits.Drawn,
        "lists": splits.Lists,
    },
    "model": {
        "softmax": tasks.Softmax,
        "svm": tasks.Svm,
        "mlp": tasks.Mlp,
        "cnn": tasks.Cnn,
        "least-squares": tasks.LinearRegression,
        "logistic": tasks.LogisticRegression,
    },
    "network": {
        "random": network.Random,
        "full": network.Full,
        "ring": network.Ring,
        "random-ring": network.RandomRing,
        "erdos-renyi": network.ErdosRenyi,
        "regular": network.Regular,
        "star": network.Star,
        "mobility": network.Mobility,
        "cycle": network.Cycle,
        "file": network.Sequence,
        "contacts": network.ContactTrace,
        "positions": network.PositionTrace,
    },
    "faults": {
        "link-failure": network.LinkFailure,
        "gilbert-elliott": network.GilbertElliott,
        "churn": network.Churn,
    },
    "algorithm": {
        "wpm": algorithms.WPM,
        "dpsgd": algorithms.DPSGD,
        "swarm": algorithms.SwarmSGD,
        "allreduce": algorithms.AllReduce,
        "fedavg": algorithms.FedAvg,
        "gossip-learning": algorithms.GossipLearning,
        "push-sum": algorithms.StochasticGradientPush,
        "extra": algorithms.EXTRA,
        "d2": algorithms.D2,
        "nids": algorithms.NIDS,
        "adom": algorithms.ADOM,
        "dabmd": algorithms.DABMD,
        "guarded": algorithms.Guarded,
        "broken": algorithms.Broken,
    },
    "step": {
        "constant": algorithms.Constant,
        "power": algorithms.Power,
        "matched": algorithms.Matched,
        "safe": algorithms.Safe,
        "plain": algorithms.Plain,
        "ratio": algorithms.Ratio,
    },
    "direction": {
        "steepest": algorithms.Steepest,
        "momentum": algorithms.Momentum,
        "quasi-global": algorithms.QuasiGlobal,
        "tracking": algorithms.Tracking,
    },
    "weights": {
        "metropolis": network.Metropolis,
        "laplacian": network.Laplacian,
        "best-constant": network.BestConstant,
        "one-pair": network.OnePair,
        "matching": network.Matching,
        "random-peer": network.RandomPeer,
    },
    "compress": {
        "top-k": algorithms.TopK,
        "random-k": algorithms.RandomK,
        "quantised": algorithms.Quantised,
    },
    "rule": {
        "clip": algorithms.Clip,
        "trimmed-mean": algorithms.TrimmedMean,
        "median": algorithms.Median,
        "checked": algorithms.Checked,
    },
    "quantity": {
        "log-uniform": network.LogUniform,
        "trace": network.TimingTrace,
    },
    "engine": {
        "simulator": engines.InProcess,
        "ray": engines.Ray,
    },
    "schedule": {
        "inverse-sqrt": algorithms.InverseSqrt,
        "inverse": algorithms.Inverse,
        "cosine": algorithms.Cosine,
        "switch": algorithms.Switch,
    },
}

# A WPM table may start from one of its two named forms: preset = "paper" or "robust".
PRESETS: dict[str, Callable[..., algorithms.WPM]] = {
    "paper": algorithms.WPM.paper,
    "robust": algorithms.WPM.robust,
}
