"""An experiment as data: describe it, run it, compare methods."""

from gossamer.errors import Interrupted
from gossamer.results.run import Run
from gossamer.results.statistics import Interval, interval, rounds_to
from gossamer.results.tables import Comparison, Method
from gossamer.study.compare import compare
from gossamer.study.load import load_spec
from gossamer.study.restore import study_of
from gossamer.study.run import run
from gossamer.study.study import Study

__all__ = [
    "Comparison",
    "Interrupted",
    "Interval",
    "Method",
    "Run",
    "Study",
    "compare",
    "interval",
    "load_spec",
    "rounds_to",
    "run",
    "study_of",
]
