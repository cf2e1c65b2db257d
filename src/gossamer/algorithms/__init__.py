"""How devices learn together: one file per paper. An algorithm sees `mix` and `grad`, nothing else.

Every module of this package is imported here, and every method that registers itself is an
attribute of this package: to add a method is to add a file.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

from gossamer.algorithms.base import Algorithm, Gradient, Mix, Neighbours, State
from gossamer.algorithms.broken import Broken
from gossamer.algorithms.composition import Composition, PowerSchedule
from gossamer.algorithms.compression import Compressor, Quantised, RandomK, TopK
from gossamer.algorithms.directions import (
    Direction,
    GradientTracking,
    PlainGradient,
    QuasiGlobalMoments,
    QuasiGlobalMomentum,
)
from gossamer.algorithms.guards import Checked, Clip, Guarded, Median, MixRule, TrimmedMean
from gossamer.algorithms.optimizers import SGD, Adam, AdamW, Optimizer
from gossamer.algorithms.presets import Preset
from gossamer.algorithms.registry import METHODS, Method, method
from gossamer.algorithms.schedules import (
    ByDivergence,
    Cosine,
    Inverse,
    InverseSqrt,
    LocalSchedule,
    Schedule,
    Switch,
    Warmup,
)
from gossamer.algorithms.steps import Constant, Matched, Plain, Power, Ratio, Safe, StepRule

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
for _method in METHODS.values():
    globals()[_method.make.__name__] = _method.make

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...  # the registered methods


__all__ = [
    "METHODS",
    "SGD",
    "Adam",
    "AdamW",
    "Algorithm",
    "Broken",
    "ByDivergence",
    "Checked",
    "Clip",
    "Composition",
    "Compressor",
    "Constant",
    "Cosine",
    "Direction",
    "Gradient",
    "GradientTracking",
    "Guarded",
    "Inverse",
    "InverseSqrt",
    "LocalSchedule",
    "Matched",
    "Median",
    "Method",
    "Mix",
    "MixRule",
    "Neighbours",
    "Optimizer",
    "Plain",
    "PlainGradient",
    "Power",
    "PowerSchedule",
    "Preset",
    "Quantised",
    "QuasiGlobalMoments",
    "QuasiGlobalMomentum",
    "RandomK",
    "Ratio",
    "Safe",
    "Schedule",
    "State",
    "StepRule",
    "Switch",
    "TopK",
    "TrimmedMean",
    "Warmup",
    "method",
]
__all__ += [_method.make.__name__ for _method in METHODS.values()]
