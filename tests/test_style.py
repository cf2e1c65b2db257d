"""Style that the linter does not check: line lengths in all languages, density of the code."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("benchmarks", "docs", "examples", "papers", "src", "tests", "tools")
LANGUAGES = {".c", ".css", ".html", ".js", ".py"}
LONGEST_LINE = 100

# Occurrences per thousand lines of Python.
MOST = {
    "docs": {"packed assignments": 1, "conditional expressions": 12, "comprehensions": 20},
    "src": {"packed assignments": 1, "conditional expressions": 8, "comprehensions": 20},
    "tests": {"packed assignments": 3, "conditional expressions": 12, "comprehensions": 20},
}


def sources(folder: str, suffixes: set[str]) -> Iterator[Path]:
    """Yield the source files below a folder of the repository."""
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix in suffixes and path.is_file():
            yield path


def kind(node: ast.AST) -> str | None:
    """Return which construct that `MOST` limits a node is, or None."""
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return "comprehensions"
    if isinstance(node, ast.IfExp):
        return "conditional expressions"
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
        for target in node.targets:
            if isinstance(target, ast.Tuple):
                return "packed assignments"
    return None


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_line_is_long(folder: str) -> None:
    """Ruff lets a line with a `type: ignore` be longer, and reads Python only."""
    long = []
    for path in sources(folder, LANGUAGES):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > LONGEST_LINE:
                long.append(f"{path.relative_to(ROOT)}:{number}")
    assert not long


@pytest.mark.parametrize("folder", MOST)
def test_the_code_is_not_dense(folder: str) -> None:
    lines = 0
    found: Counter[str | None] = Counter()
    for path in sources(folder, {".py"}):
        text = path.read_text(encoding="utf-8")
        lines += text.count("\n")
        found.update(map(kind, ast.walk(ast.parse(text))))
    for construct, most in MOST[folder].items():
        assert found[construct] * 1000 / lines <= most, construct
