"""The AIMS paper, as far as its claims can be tested from what is public.

gossamer reproduce aims           every part
gossamer reproduce aims --list    the list of the parts
"""

from dataclasses import replace

from papers.aims import rate
from papers.aims.comparison import Comparison
from papers.field import cells

# With 32 devices and few links D-PSGD does not reach the field study's highest targets.
_DIGITS = replace(cells.DIGITS, targets=(0.7, 0.8, 0.9))
_MNIST = replace(cells.MNIST, targets=(0.7, 0.8, 0.85))
TABLES_AND_FIGURES = (
    Comparison("digits", _DIGITS, runs=130, seconds_per_run=1.0),
    Comparison("mnist", _MNIST, runs=130, seconds_per_run=2.0),
)
THEORY = (rate,)
STUDIES = ()
