"""Fill tables in Markdown files from results, so that no number is copied by hand.

    python -m papers.blocks FILE…            fill the tables
    python -m papers.blocks --check FILE…    only name the files that are out of date

A table begins with a line like

    <!-- csv results/fair.csv split=noniid target=0.88; method, ours ± ours_95 as rounds -->

and ends with `<!-- end -->`. Between them stand the rows of that file (relative to the Markdown
file) for which the conditions hold, with the columns named. `<!-- include results/speed.md -->`
stands for a whole file, `<!-- field NAME -->` for a table of `papers.field.tables`,
`<!-- field method NAME -->` for the results of one method. Numbers in
sentences are filled too, see `papers.values`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from papers.values import selected, short, with_values

_INCLUDE = re.compile(
    r"(?P<head><!-- include (?P<path>[^\s;]+\.md) -->\n).*?<!-- end -->", re.DOTALL
)
_FIELD = re.compile(r"(?P<head><!-- field (?P<name>[^\n]+?) -->\n).*?<!-- end -->", re.DOTALL)
_TABLE = re.compile(
    r"<!-- csv (?P<path>[^\s;]+\.csv)(?P<where>[^;\n]*);(?P<columns>[^\n]*?)-->\n.*?<!-- end -->",
    re.DOTALL,
)


def filled(path: Path) -> str:
    """Return the text of a Markdown file with every table and every number filled again.

    Args:
        path: The Markdown file.
    """

    def include(block: re.Match[str]) -> str:
        content = (path.parent / block["path"]).read_text()
        return f"{block['head']}{content}<!-- end -->"

    def fill(block: re.Match[str]) -> str:
        return _table(block, path.parent)

    text = _TABLE.sub(fill, _INCLUDE.sub(include, path.read_text()))
    return with_values(_FIELD.sub(_field_table, text), path.parent)


def _field_table(block: re.Match[str]) -> str:
    """Return a block with a table of the comparison of all methods."""
    # Imports torch, which most pages do not need.
    from papers.field.method_table import method_table
    from papers.field.tables import table

    kind, _, method = block["name"].partition(" ")
    content = method_table(method) if kind == "method" else table(block["name"])
    return f"{block['head']}{content}<!-- end -->"


def _table(block: re.Match[str], folder: Path) -> str:
    """Return a block of Markdown with its table filled."""
    expressions = []
    titles = []
    for column in block["columns"].split(","):
        expressions.append(column.partition(" as ")[0].strip())
        titles.append(column.rpartition(" as ")[2].strip())
    rows = selected(folder / block["path"], block["where"])
    if not rows:
        raise SystemExit(f"{block['path']} has no row with {block['where'].strip()}")
    first_line = block[0].partition("\n")[0]
    lines = [first_line, _line(titles), _line("---" for _ in titles)]
    for row in rows:
        lines.append(_line(_cell(row, expression) for expression in expressions))
    lines.append("<!-- end -->")
    return "\n".join(lines)


def _cell(row: dict[str, str], expression: str) -> str:
    """Return a column, or two of them as "mean ± half"; a dash if there is no value."""
    mean, _, half = (part.strip() for part in expression.partition("±"))
    if not half or not row[half]:
        return short(row[mean]) or "–"
    return f"{short(row[mean])} ± {short(row[half])}"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def main(words: list[str]) -> int:
    """Fill or check the files that the command line names.

    Args:
        words: The arguments of the command line.

    Returns:
        The exit code: 1 if a check found a file out of date.
    """
    is_check = "--check" in words
    found = False
    for path in map(Path, words):
        if path.suffix != ".md":
            continue
        text = filled(path)
        if text == path.read_text():
            continue
        found = True
        if is_check:
            print(f"{path} is stale: python -m papers.blocks {path}")
        else:
            path.write_text(text)
    return int(is_check and found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
