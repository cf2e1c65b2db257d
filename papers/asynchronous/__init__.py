"""Fast and slow devices that meet by chance: methods with common rounds beside methods without.

gossamer reproduce asynchronous           every part
gossamer reproduce asynchronous --list    the list of the parts
"""

from papers.asynchronous.comparison import Comparison
from papers.asynchronous.setting import SLOW_STEPS

TABLES_AND_FIGURES = (
    Comparison("iid", SLOW_STEPS, "iid", runs=290, seconds_per_run=2.0),
    Comparison("dirichlet", SLOW_STEPS, "dirichlet 0.5", runs=325, seconds_per_run=2.0),
)
THEORY = ()
STUDIES = ()
