"""The compute backend: compiled kernels where they are faster, plain torch everywhere else.

Every function here works for any tensors. Which implementation serves a call is decided in
`choice` and nowhere else: by a measurement on this processor, or by the environment variable
GOSSAMER_BACKEND.
"""

from __future__ import annotations

import platform

from gossamer._core.processor import processor
from gossamer._core.versions import version
from gossamer.backend import choice
from gossamer.backend.choice import choices, use, using
from gossamer.backend.event_rounds import (
    CompiledTimeline,
    compiled_timeline,
    neighbours,
    wave_numbers,
)
from gossamer.backend.gradients import softmax_gradient
from gossamer.backend.mixing import Block, MixWeights
from gossamer.backend.plain import linear_gradient, linear_outputs, softmax_slope
from gossamer.backend.rows import average_pairs, copy_rows, get_rows, sample_numbers, set_rows
from gossamer.backend.samples import Batches, Samples, gather
from gossamer.backend.scratch import Scratch
from gossamer.backend.steps import matched_step, roots

__all__ = [
    "Batches",
    "Block",
    "CompiledTimeline",
    "MixWeights",
    "Samples",
    "Scratch",
    "average_pairs",
    "choices",
    "compiled_timeline",
    "copy_rows",
    "gather",
    "get_rows",
    "linear_gradient",
    "linear_outputs",
    "matched_step",
    "neighbours",
    "roots",
    "sample_numbers",
    "set_rows",
    "softmax_gradient",
    "softmax_slope",
    "use",
    "using",
    "versions",
    "wave_numbers",
]


def versions() -> dict[str, str]:
    """Return what the numbers of a run depend on: packages, processor type and kernels.

    Example:
        >>> sorted(versions())
        ['gossamer', 'kernels', 'machine', 'numpy', 'processor', 'python', 'torch']
    """
    found = {name: version(name) for name in ("gossamer", "torch", "numpy")}
    found["python"] = platform.python_version()
    found["machine"] = platform.machine()
    found["processor"] = processor()
    found["kernels"] = choice.describe()
    return found
