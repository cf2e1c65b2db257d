"""Numbers in sentences: filled from results, and checks that must be true."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from papers.blocks import filled  # noqa: E402
from papers.values import bare_numbers, loose_numbers, with_values  # noqa: E402

# Pages whose results are all made from files or checked against them.
PROVED = (
    "README.md",
    "docs/how-to-choose.md",
    "docs/reproducing.md",
    "papers/field/README.md",
    "papers/wpm/README.md",
    "papers/wpm/claims.md",
    "papers/wpm/theory.md",
)

# Pages in which every number needs a reason.
STRICT = (*sorted((ROOT / "papers").glob("*/README.md")), ROOT / "papers/wpm/claims.md")
# Numbers of these pages that are settings, or results with a test of their own.
REASONS = {
    "does not  , and so p not to 1": "the limit of p",
    "| devices | 75, the": "a setting",
    "a step takes 20 to": "a setting",
    "| target | 70 %": "a target",
    "55 % on the other split": "a target",
    "stayed at 0.9": "a setting",
    "from t to 2t": "a formula",
    "340 drawn at random": "a setting",
    "differ by up to 1.21": "test_the_papers_tables_differ_on_shared_cells",
    "25 %; at": "a target",
    "every p up to 31": "a setting",
    "rounds on IID data and 500": "a setting",
    "Decrease p to 1": "a setting",
    "the optimum is 1": "of two devices, test_theory_pictures.py",
    "at 100, 200 and 300": "test_the_paper_repeats_cells_of_table_4_and_grows_but_for_one_power",
    "is 1.01 to 1.10": "test_the_cost_of_a_power_is_that_of_the_benchmark",
    "1.15 to 1.27": "test_the_cost_of_a_power_is_that_of_the_benchmark",
    "0.22 for": "2/(m − 1) at m = 10",
}

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


@pytest.mark.parametrize(
    "sentence",
    [
        "p = 1 ends at 91 %.",
        "It reaches the target in 31 rounds.",
        "The gain is 2.4 as fast.",
        "| tracking | 91.2 | 30 |",
        "D-PSGD 49 and quasi-global 12 rounds",
    ],
)
def test_bare_numbers(sentence: str) -> None:
    assert bare_numbers(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "With 10 devices and η = 0.01 on a ring, rounds to 88 %, five seeds.",
        "Table 2 at p = 5, 9 and 15: at round 500, batches of 8 and 2,000 test images",
        "e ≈ 1 − (n+1)·τ, as t^−(n+1)",
        "needs <!-- value a.csv p=1; ours -->31<!-- / --> rounds, `5` (arXiv:2210.16181, 2022)",
    ],
)
def test_settings_are_no_bare_numbers(sentence: str) -> None:
    assert not bare_numbers(sentence)


@pytest.mark.parametrize("page", STRICT, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_number_of_a_paper_has_a_reason(page: Path) -> None:
    numbers = bare_numbers(page.read_text())
    assert not [text for text in numbers if not any(reason in text for reason in REASONS)]


def test_every_reason_is_used() -> None:
    numbers = [text for page in STRICT for text in bare_numbers(page.read_text())]
    assert not [reason for reason in REASONS if not any(reason in text for text in numbers)]
