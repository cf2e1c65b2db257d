"""Every method of the catalogue on the same links: four tasks, three splits, six networks.

gossamer reproduce field           every part
gossamer reproduce field --list    the list of the parts
"""

from papers.field import broken, cells, overview
from papers.field.again import Again
from papers.field.task_part import TaskPart

TABLES_AND_FIGURES = ()
THEORY = ()
# Numbers of runs and seconds per run: measured for digits with 5 seeds; the others have as many
# runs per cell, and the seconds of single runs. The CNN on all networks would take more than an
# hour: `cifar_again` adds the others.
_TASKS = (
    TaskPart("digits", cells.DIGITS, runs=5000, seconds_per_run=0.8),
    TaskPart("mnist", cells.MNIST, runs=5000, seconds_per_run=1.4),
    TaskPart("fashion", cells.FASHION, runs=5000, seconds_per_run=1.4),
    TaskPart("cifar", cells.CIFAR, runs=700, seconds_per_run=8.6, network="random ring"),
)
STUDIES = (*_TASKS, *(Again(part) for part in _TASKS), broken, overview)
