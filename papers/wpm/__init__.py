"""The WPM paper, reproduced: one module per table or figure, named after it.

gossamer reproduce wpm           every table and figure, and the theory
gossamer reproduce wpm --list    the list of the parts
"""

from papers.wpm import (
    ablation,
    cifar,
    fair,
    figure1,
    figure2,
    figure3,
    figure4,
    figure5,
    figure6,
    lemma1,
    plain_step,
    readings,
    regimes,
    search_readings,
    slips,
    step_rules,
    table1,
    table2,
    table3,
    table4,
    theorem1,
)

# A part has a TITLE, cells(scale) with the runs that it needs, optionally then(scale, results) with
# runs that depend on the results of the first, and make(scale, results, folder).
TABLES_AND_FIGURES = (
    table1,
    table2,
    table3,
    table4,
    figure1,
    figure2,
    figure3,
    figure4,
    figure5,
    figure6,
)
THEORY = (lemma1, theorem1, slips, ablation, plain_step)
# These take longer: `gossamer reproduce wpm --studies`.
STUDIES = (readings, search_readings, cifar, step_rules, fair, regimes)
