"""Pages of README, docs and papers: tables equal the results, and links exist."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from papers.blocks import filled  # noqa: E402

_FOUND = (*(ROOT / "papers").rglob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md")
PAGES = sorted(_FOUND)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_up_to_date(page: Path) -> None:
    text = page.read_text()
    assert filled(page) == text, f"stale: python -m papers.blocks {page.relative_to(ROOT)}"
    assert not re.search(r"@[A-Z]+@|TODO|TBD", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_exist(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / link).exists(), link


def test_a_table_is_filled_from_its_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("kind,p,ours,ours_95\nx,1,181.0,19.3\nx,3,,\ny,1,5.0,1.0\n")
    page = tmp_path / "a.md"
    page.write_text(
        "before\n<!-- csv a.csv kind=x; p, ours ± ours_95 as rounds -->\nold\n<!-- end -->\nafter\n"
    )
    assert filled(page).splitlines()[1:-1] == [
        "<!-- csv a.csv kind=x; p, ours ± ours_95 as rounds -->",
        "| p | rounds |",
        "| --- | --- |",
        "| 1 | 181 ± 19.3 |",
        "| 3 | – |",
        "<!-- end -->",
    ]
