"""Reproduction of the WPM paper: one module per table or figure, with the same name.

`gossamer reproduce wpm --list` lists the parts.
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
    iid,
    kept_gain,
    lemma1,
    plain_step,
    readings,
    regimes,
    slips,
    step_rules,
    table1,
    table2,
    table3,
    table4,
    theorem1,
)

# A part has a TITLE, cells(scale), optionally then(scale, results), and make(scale, results, out).
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
# Longer: `gossamer reproduce wpm --studies`.
STUDIES = (readings, cifar, step_rules, fair, iid, regimes, kept_gain)
