"""A gain on the shared displacement: theory on quadratics, and what it is worth.

gossamer reproduce gain           every part
gossamer reproduce gain --list    the list of the parts
"""

from papers.gain import forms, verdict

TABLES_AND_FIGURES = (verdict,)
THEORY = (forms,)
STUDIES = ()
