"""gossamer: train one model across devices over links that change, without a server.

    >>> import gossamer as gs
    >>> network = gs.Random(devices=10, density=0.2)
    >>> study = gs.Study(gs.WPM(p=15, eta=0.05), network, split=gs.OneLabel())
    >>> gs.run(study).summary["accuracy"]                      # doctest: +SKIP
    0.93

Names are loaded when they are first used: `import gossamer` brings neither torch nor anything else
that is heavy.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

__version__ = "0.2.0"  # the only place: pyproject.toml reads it from here

# The public names by the module that defines them. Registered methods are found by reading the
# files of `algorithms`, so that a new method needs no entry here.
_EXPORTS = {
    "algorithms": """
        METHODS SGD Adam AdamW Algorithm Broken ByDivergence Checked Clip Composition Constant
        Cosine GradientTracking Guarded Inverse InverseSqrt LocalSchedule Matched Median Plain
        PlainGradient Power PowerSchedule Preset Quantised QuasiGlobalMomentum QuasiGlobalMoments
        RandomK Ratio Safe Switch TopK TrimmedMean Warmup method
    """,
    "network": """
        Network Links Random Full Ring RandomRing ErdosRenyi Regular Star Torus SmallWorld
        StochasticBlocks Epidemic Exponential OnePeerExponential HyperHypercube BaseGraph
        EquiStatic EquiDyn Mobility PoissonMeetings Cycle Graph Callback Sequence ContactLog
        ContactTrace PositionLog PositionTrace read_contacts read_positions Timing Energy
        LogUniform TimingTrace
        LinkFailure GilbertElliott Churn from_networkx metropolis Metropolis Laplacian
        BestConstant OnePair Matching RandomPeer NetworkWeights ReceivedMean
    """,
    "tasks": """
        Task Data Digits Mnist FashionMnist Cifar10 Arrays Table from_arrays from_dataset from_table
        Iid OneLabel ByClass Labels Dirichlet Uneven Drawn Lists from_lists Validation Stream
        Softmax Svm Mlp Cnn Module LinearRegression LogisticRegression Loss
        CrossEntropy BinaryCrossEntropy SquaredError AbsoluteError Huber
        Accuracy FunctionMetric IoU MAE MacroF1 Metric Perplexity R2 RMSE TopKAccuracy
    """,
    "tasks.hf": "HuggingFace TokenModel Transformers from_hf",
    "tasks.synthetic": "LeastSquares Logistic",
    "engines": "Events Measure Observer Plan Ray Simulation Simulator",
    "results.run": "Run",
    "results.runs": "Runs read",
    "study": "Study load_spec run compare",
    "study.track": "MLflow TensorBoard WandB",
    "study.code": "AlgorithmCode DataCode LossCode MetricCode ModelCode NetworkCode SplitCode",
    "mirror": "ArcsinhMap IdentityMap MirrorMap PowerMap SinhMap bregman power_mean signed_power",
    "errors": """
        GossamerError InputError Interrupted DataError Diverged DataWarning NetworkWarning
        SpeedWarning
    """,
}
_METHOD_CLASS = re.compile(r"^@method\(.*?^class (\w+)", re.MULTILINE | re.DOTALL)


def _modules() -> dict[str, str]:
    """Return the module of every public name."""
    found = {}
    for path in Path(__file__).parent.glob("algorithms/*.py"):
        for name in _METHOD_CLASS.findall(path.read_text(encoding="utf-8")):
            found[name] = "algorithms"
    for module, names in _EXPORTS.items():
        for name in names.split():
            found[name] = module
    return found


_MODULES = _modules()

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'gossamer' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"gossamer.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
