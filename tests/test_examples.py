"""The examples run, warn of nothing, and show what they are there to show."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def lines_of(name: str, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """What an example prints, as words."""
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return [line.split() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.slow
def test_own_data_and_model(capsys: pytest.CaptureFixture[str]) -> None:
    head, *rows = lines_of("own_data_and_model.py", capsys)
    assert head[:2] == ["method", "accuracy"]
    assert [row[0] for row in rows] == ["D-PSGD", "WPM", "AllReduce"]
    assert all(float(row[-4]) > 0.9 and int(row[-2]) < 120 for row in rows)


@pytest.mark.slow
def test_own_network(capsys: pytest.CaptureFixture[str]) -> None:
    _, *rows = lines_of("own_network.py", capsys)
    accuracy = {row[0]: float(row[3]) for row in rows}
    assert list(accuracy) == ["graphs", "function", "log"]
    assert accuracy["graphs"] > accuracy["log"] > accuracy["function"] > 0.15  # the more links, the better
    assert {row[0]: (row[1], row[2]) for row in rows}["function"] == ("1.0", "9")  # nine units, one after the other


@pytest.mark.slow
def test_theory(capsys: pytest.CaptureFixture[str]) -> None:
    words = lines_of("theory.py", capsys)
    assert words[0][:4] == ["Assumption", "1", "holds:", "True."]
    rows = [line for line in words if line and line[0].isdigit()]
    assert [row[0] for row in rows] == ["1", "3", "5"]
    assert all(0 < float(measured) < float(bound) for _, _, measured, bound in rows)


def test_every_example_is_tested() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == ["own_data_and_model.py", "own_network.py", "theory.py"]
