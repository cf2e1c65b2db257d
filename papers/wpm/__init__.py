"""The source paper, reproduced: one module a table or figure, named after it. `gossamer reproduce wpm --list` lists them."""

from papers.wpm import (
    figure1,
    figure2,
    figure3,
    figure4,
    figure5,
    figure6,
    table1,
    table2,
    table3,
    table4,
)

PARTS = {
    module.__name__.rpartition(".")[2]: module
    for module in (table1, table2, table3, table4, figure1, figure2, figure3, figure4, figure5, figure6)
}
