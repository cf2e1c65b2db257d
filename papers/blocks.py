"""Generate Markdown tables from results.

A block begins with a line like

    <!-- csv results/fair.csv split=noniid target=0.88; method, ours ± ours_95 as rounds -->

and ends with `<!-- end -->`; in between is the table: the named columns of the rows that satisfy
the conditions. Paths are relative to the Markdown file. `<!-- include results/methods.md -->`
includes a whole file.

`python -m papers.blocks FILE…` fills the blocks; with --check it only lists the stale files.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

_INCLUDED = re.compile(
    r"(?P<head><!-- include (?P<path>[^\s;]+\.md) -->\n).*?<!-- end -->", re.DOTALL
)
_BLOCK = re.compile(
    r"<!-- csv (?P<path>[^\s;]+\.csv)(?P<where>[^;\n]*);(?P<columns>[^\n]*?)-->\n.*?<!-- end -->",
    re.DOTALL,
)


def filled(path: Path) -> str:
    """Return the text of a Markdown file with every block generated anew."""
    whole = _INCLUDED.sub(
        lambda block: f"{block['head']}{(path.parent / block['path']).read_text()}<!-- end -->",
        path.read_text(),
    )
    return _BLOCK.sub(lambda block: _block(block, path.parent), whole)


def _block(block: re.Match[str], folder: Path) -> str:
    where = [condition.split("=", 1) for condition in block["where"].replace("\\ ", "\0").split()]
    where = [(key, value.replace("\0", " ")) for key, value in where]
    columns = [
        (name.partition(" as ")[0].strip(), name.rpartition(" as ")[2].strip())
        for name in block["columns"].split(",")
    ]
    with (folder / block["path"]).open() as file:
        rows = [
            row for row in csv.DictReader(file) if all(row[key] == value for key, value in where)
        ]
    if not rows:
        raise SystemExit(f"{block['path']} has no row with {block['where'].strip()}")
    lines = [_line(title for _, title in columns), _line("---" for _ in columns)]
    lines += [_line(_cell(row, expression) for expression, _ in columns) for row in rows]
    head = block[0].partition("\n")[0]
    return "\n".join([head, *lines, "<!-- end -->"])


def _cell(row: dict[str, str], expression: str) -> str:
    """Return a column, or two of them as "mean ± half"; a dash if empty."""
    mean, _, half = (part.strip() for part in expression.partition("±"))
    if not half or not row[half]:
        return _short(row[mean]) or "–"
    return f"{_short(row[mean])} ± {_short(row[half])}"


def _short(number: str) -> str:
    """181.0 as 181."""
    return number[:-2] if re.fullmatch(r"-?\d+\.0", number) else number


def _line(cells: object) -> str:
    return "| " + " | ".join(cells) + " |"  # type: ignore[call-overload, no-any-return]


def main(words: list[str]) -> int:
    stale = [
        path
        for path in map(Path, words)
        if path.suffix == ".md" and filled(path) != path.read_text()
    ]
    for path in stale:
        if "--check" in words:
            print(f"{path} is stale: python -m papers.blocks {path}")
        else:
            path.write_text(filled(path))
    return 1 if stale and "--check" in words else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
