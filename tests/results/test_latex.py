"""Tables in LaTeX: every cell in its column, nothing that LaTeX would read as a command."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from gossamer.results.latex import escaped, latex_table
from gossamer.results.text import TableColumn

TEXT = st.text(st.characters(exclude_categories=("C", "Z")) | st.just(" "), max_size=12)
_COMMAND = re.compile(
    r"\\(?:textbackslash|textasciicircum|textasciitilde|textless|textgreater)\{\}"
    r"|\\[{}%&#$_]|\$(?:\\pm|-|\\eta|\\beta)\$"
)


def as_printed(code: str) -> str:
    """Return what LaTeX prints for escaped text, by an independent table of its commands."""
    symbols = {
        r"\textbackslash{}": "\\",
        r"\textasciicircum{}": "^",
        r"\textasciitilde{}": "~",
        r"\textless{}": "<",
        r"\textgreater{}": ">",
        r"$\pm$": "±",
        "$-$": "−",
        r"$\eta$": "η",
        r"$\beta$": "β",
    }
    return _COMMAND.sub(lambda found: symbols.get(found[0], found[0][-1]), code)


@given(TEXT)
def test_text_is_printed_as_it_is(text: str) -> None:
    code = escaped(text)
    assert not re.search(r"[%&#$_^~{}\\]", _COMMAND.sub("", code))
    assert as_printed(code) == text.replace("–", "--")


@given(st.lists(st.tuples(TEXT, TEXT, TEXT), min_size=1, max_size=5))
def test_every_row_has_as_many_cells_as_there_are_columns(rows: list[tuple[str, ...]]) -> None:
    columns = []
    for k, cells in enumerate(zip(*rows, strict=True)):
        columns.append(TableColumn(("head", f"column {k}")[: k + 1], cells))
    lines = latex_table(columns).splitlines()
    assert lines[:3] == ["% \\usepackage{booktabs}", "\\begin{tabular}{lrr}", "\\toprule"]
    assert lines[-2:] == ["\\bottomrule", "\\end{tabular}"]
    assert lines[5] == "\\midrule"
    body = lines[3:5] + lines[6:-2]
    assert len(body) == 2 + len(rows)
    for line in body:
        assert line.endswith(r" \\")
        assert len(re.findall(r"(?<!\\)&", _COMMAND.sub("", line))) == 2


def test_numbers_with_a_sign_and_an_interval() -> None:
    table = latex_table([TableColumn(("a",), ("x",)), TableColumn(("b",), ("-1.5 ± 0.2",))])
    assert "x & $-1.5$ $\\pm$ 0.2 \\\\" in table
