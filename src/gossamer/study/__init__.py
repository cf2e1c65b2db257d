"""An experiment as data: what is run, running it, keeping it, comparing."""

from gossamer.study.compare import Method, compare
from gossamer.study.metrics import Interval, interval, rounds_to
from gossamer.study.run import Interrupted, Run, run
from gossamer.study.study import Study

__all__ = ["Interrupted", "Interval", "Method", "Run", "Study", "compare", "interval", "rounds_to", "run"]
