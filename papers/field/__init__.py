"""Every method on the same links. `gossamer reproduce field --list` lists the parts."""

from papers.field import broken, composition, methods

TABLES_AND_FIGURES = (methods,)
THEORY = ()
STUDIES = (composition, broken)
