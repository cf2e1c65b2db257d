"""The user's own code as a part of a study: `{ kind = "python", object = "my_model:make" }`.

A part names an object in a Python file, and behaves like the object that it names, or that the
named function makes. It is written to a spec as the same table. Only its fields are pickled: a
process that receives it imports the same file, and compares its digest first.
"""

from gossamer.study.code.base import Code
from gossamer.study.code.functions import LossCode, MetricCode
from gossamer.study.code.parts import (
    AlgorithmCode,
    DataCode,
    ModelCode,
    NetworkCode,
    SplitCode,
)

__all__ = [
    "AlgorithmCode",
    "Code",
    "DataCode",
    "LossCode",
    "MetricCode",
    "ModelCode",
    "NetworkCode",
    "SplitCode",
]
