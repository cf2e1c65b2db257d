"""An experiment as data: what is run, running it, keeping it, comparing."""

from gossamer.study.compare import compare
from gossamer.study.metrics import Interval, interval, rounds_to
from gossamer.study.results import Comparison, Method
from gossamer.study.run import Interrupted, Run, run
from gossamer.study.study import Study
from gossamer.study.track import Callback

__all__ = [
    "Callback",
    "Comparison",
    "Interrupted",
    "Interval",
    "Method",
    "Run",
    "Study",
    "compare",
    "interval",
    "rounds_to",
    "run",
]
