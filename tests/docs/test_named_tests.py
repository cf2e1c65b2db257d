"""The tests that pages and SECURITY.md name exist, so that a reader can run them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("papers/**/*.md")})
_FILE = re.compile(r"(?<![\w/])tests/[\w/]+\.py")
_CHOICE = re.compile(r"pytest (?P<file>tests/[\w/]+\.py) -k (?P<word>\w+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tests_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text()
    missing = [name for name in _FILE.findall(text) if not (ROOT / name).is_file()]
    assert missing == []
    for choice in _CHOICE.finditer(text):
        tests = re.findall(r"def (test_\w+)", (ROOT / choice["file"]).read_text())
        assert any(choice["word"] in name for name in tests), choice[0]
