"""Every method of the catalogue on the same links.

gossamer reproduce field           every part
gossamer reproduce field --list    the list of the parts
"""

from papers.field import broken, composition, methods

TABLES_AND_FIGURES = (methods,)
THEORY = ()
STUDIES = (composition, broken)
