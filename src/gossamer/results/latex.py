"""Tables in LaTeX."""

from __future__ import annotations

from collections.abc import Sequence

from gossamer.results.text import TableColumn, heading_rows, rows_of

# What LaTeX does not print as it is, with what it prints instead.
_ESCAPED = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "%": r"\%",
        "&": r"\&",
        "#": r"\#",
        "$": r"\$",
        "_": r"\_",
        "^": r"\textasciicircum{}",
        "~": r"\textasciitilde{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "–": "--",
        "±": r"$\pm$",
        "−": "$-$",
        "η": r"$\eta$",
        "β": r"$\beta$",
    }
)


def escaped(text: str) -> str:
    r"""Return text as LaTeX prints it.

    Args:
        text: Any text in one line.

    Example:
        >>> print(escaped("top_k 10 %: 0.5 ± 0.1"))
        top\_k 10 \%: 0.5 $\pm$ 0.1
    """
    return text.translate(_ESCAPED)


def latex_table(columns: Sequence[TableColumn]) -> str:
    r"""Return a table with the rules of the package booktabs.

    Args:
        columns: The columns. The first is flush left, the others are flush right.

    Example:
        >>> print(latex_table([TableColumn(("method",), ("A",)), TableColumn(("loss",), ("-1",))]))
        % \usepackage{booktabs}
        \begin{tabular}{lr}
        \toprule
        method & loss \\
        \midrule
        A & $-1$ \\
        \bottomrule
        \end{tabular}
    """
    lines = [
        r"% \usepackage{booktabs}",
        rf"\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}",
        r"\toprule",
    ]
    lines += map(_row, heading_rows(columns))
    lines.append(r"\midrule")
    lines += map(_row, rows_of(columns))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def _row(parts: Sequence[str]) -> str:
    return " & ".join(map(_cell, parts)).strip() + r" \\"


def _cell(text: str) -> str:
    """Return a cell; a number with a sign is set in the font of formulas, whose minus is longer."""
    number, sign, half = text.partition(" ± ")
    if number[:1] in ("-", "+"):
        return f"${number}${escaped(sign + half)}"
    return escaped(text)
