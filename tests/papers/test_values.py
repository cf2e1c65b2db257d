"""Numbers in sentences: filled from results, and checks that must be true."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from papers.blocks import filled  # noqa: E402
from papers.values import loose_numbers, with_values  # noqa: E402

# Pages whose results are all made from files or checked against them.
PROVED = (
    "README.md",
    "docs/how-to-choose.md",
    "papers/field/README.md",
    "papers/wpm/README.md",
    "papers/wpm/claims.md",
    "papers/wpm/theory.md",
)

CSV = """# comment
method,p,ours,ours_95
A B,1,181.0,19.3
WPM,3,144.4,11.0
WPM,15,,
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.csv").write_text(CSV)
    return tmp_path


@pytest.mark.parametrize(
    ("comment", "number"),
    [
        ("p=1; ours", "181"),
        ("p=3; ours ± ours_95; .0f", "144 ± 11"),
        (r"method=A\ B; ours", "181"),
        ("method!=WPM; ours", "181"),
        ("p<15; min ours; .0f", "144"),
        ("p<15; max ours", "181"),
        ("p<=3; mean ours; .1f", "162.7"),
        ("p<15; range ours; .0f", "144 to 181"),
        ("p=1; range ours", "181"),
        ("p>1; count", "2"),
        ("ours=; count", "1"),
        ("p=1; ours; .0%", "18100%"),
    ],
)
def test_a_number_is_filled(folder: Path, comment: str, number: str) -> None:
    page = folder / "a.md"
    page.write_text(f"It needs <!-- value a.csv {comment} -->old<!-- / --> rounds, x.\n")
    filled_page = f"It needs <!-- value a.csv {comment} -->{number}<!-- / --> rounds, x.\n"
    assert filled(page) == filled_page


@pytest.mark.parametrize(
    ("comment", "reason"),
    [
        ("<!-- value a.csv method=WPM; ours -->1<!-- / -->", "2 rows"),
        ("<!-- value a.csv p=2; ours -->1<!-- / -->", "0 rows"),
        ("<!-- value a.csv p=15; ours -->1<!-- / -->", "no value of 'ours'"),
        ("<!-- value a.csv method=WPM; min ours -->1<!-- / -->", "no value of 'ours'"),
        ("<!-- value a.csv p=1; hours -->1<!-- / -->", "no value of 'hours'"),
        ("<!-- value a.csv q=1; ours -->1<!-- / -->", "no column q"),
        ("<!-- value a.csv p=1 -->1<!-- / -->", "0 of these"),
        ("<!-- value a.csv p=1; ours -->1", "0 of these"),
        ("<!-- check a.csv p=1; ours -->", "0 of these"),
        ("<!-- check a.csv p<15; min ours > 144.4 -->", "false: it is 144.4"),
        ("<!-- check a.csv ours=; count = 0 -->", "false: it is 1"),
    ],
)
def test_a_number_without_evidence_is_refused(folder: Path, comment: str, reason: str) -> None:
    with pytest.raises(SystemExit, match=reason):
        with_values(f"Text {comment} more.", folder)


def test_a_true_check_leaves_the_page_as_it_is(folder: Path) -> None:
    text = "All reach it. <!-- check a.csv p<15; min ours >= 144.4 --> Good."
    assert with_values(text, folder) == text


def test_loose_numbers() -> None:
    made = "needs <!-- value a.csv p=1; ours -->31<!-- / --> rounds, `needs 5`, 10 devices, p = 15"
    assert not loose_numbers(made)
    for sentence in ("31 ± 5 rounds", "saves 24 %", "24 % fewer rounds", "at least 3 times"):
        assert len(loose_numbers(f"{made}; {sentence}.")) == 1, sentence


@pytest.mark.parametrize("page", PROVED)
def test_a_page_has_no_result_without_evidence(page: str) -> None:
    assert loose_numbers((ROOT / page).read_text()) == []
