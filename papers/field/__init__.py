"""Every method of the catalogue on the same links.

gossamer reproduce field           every part
gossamer reproduce field --list    the list of the parts
"""

from papers.field import broken, cells, composition, methods
from papers.field.task_part import TaskPart

TABLES_AND_FIGURES = (methods,)
THEORY = ()
STUDIES = (
    composition,
    broken,
    TaskPart("mnist", cells.MNIST),
    TaskPart("fashion", cells.FASHION),
    TaskPart("digits", cells.DIGITS),
    TaskPart("cifar", cells.CIFAR),
)
