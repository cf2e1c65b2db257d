"""An experiment as data: what is run, running it, keeping it, comparing."""

from gossamer.results.run import Run
from gossamer.results.statistics import Interval, interval, rounds_to
from gossamer.results.tables import Comparison, Method
from gossamer.study.compare import compare
from gossamer.study.restore import study_of
from gossamer.study.run import Interrupted, run
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
    "study_of",
]
