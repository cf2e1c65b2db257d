"""The examples run without warnings and show the expected results."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

import gossamer as gs

EXAMPLES = Path(__file__).parents[2] / "examples"


def lines_of(name: str, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """Return the words of every line that an example prints."""
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return [line.split() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.slow
def test_own_data(capsys: pytest.CaptureFixture[str]) -> None:
    _, *rows = lines_of("own_data.py", capsys)
    assert [row[0] for row in rows] == ["D-PSGD", "Tracking"]
    assert all(float(worst) > 0.85 for *_, worst in rows)


@pytest.mark.slow
def test_own_data_and_model(capsys: pytest.CaptureFixture[str]) -> None:
    head, *rows = lines_of("own_data_and_model.py", capsys)
    assert head[:2] == ["method", "accuracy"]
    assert [row[0] for row in rows] == ["D-PSGD", "WPM", "All-Reduce"]
    for row in rows:
        assert float(row[-4]) > 0.9
        assert int(row[-2]) < 120


def test_own_code() -> None:
    (study,) = gs.load_spec(EXAMPLES / "own_code.toml", allow_code=True)
    assert gs.run(study).summary["loss"] < 0.2
    (trivial,) = gs.load_spec(EXAMPLES / "own_code.toml", ["rounds=0"], allow_code=True)
    assert gs.run(trivial).summary["loss"] > 0.2


@pytest.mark.slow
def test_own_model(capsys: pytest.CaptureFixture[str]) -> None:
    _, *rows = lines_of("own_model.py", capsys)
    squared, huber = (float(off) for _, off in rows)
    assert (
        huber < 0.15 < squared
    )  # readings that are far off pull the squared loss away, and not the other


@pytest.mark.slow
def test_own_network(capsys: pytest.CaptureFixture[str]) -> None:
    _, *rows = lines_of("own_network.py", capsys)
    accuracy = {row[0]: float(row[3]) for row in rows}
    assert list(accuracy) == ["graphs", "function", "log"]
    assert (
        accuracy["graphs"] > accuracy["log"] > accuracy["function"] > 0.15
    )  # the more links, the better
    assert {row[0]: (row[1], row[2]) for row in rows}["function"] == (
        "1.0",
        "9",
    )  # nine units, one after the other


@pytest.mark.slow
def test_theory(capsys: pytest.CaptureFixture[str]) -> None:
    words = lines_of("theory.py", capsys)
    assert words[0][:4] == ["Assumption", "1", "holds:", "True."]
    rows = []
    for line in words:
        if line and line[0].isdigit():
            rows.append(line)
    assert [row[0] for row in rows] == ["1", "3", "5"]
    for _, _, measured, bound in rows:
        assert 0 < float(measured) < float(bound)


@pytest.mark.slow
def test_timing(capsys: pytest.CaptureFixture[str]) -> None:
    _, *rows = lines_of("timing.py", capsys)
    (rounds, sent, slow, fast), (more_rounds, less_sent, quicker, slower) = (
        [float(word) for word in row if word.replace(".", "").isdigit()] for row in rows
    )
    assert more_rounds > rounds
    assert less_sent < sent
    assert quicker < slow  # fewer bytes win where links are slow
    assert slower > fast  # and fewer rounds where they are not


@pytest.mark.slow
def test_write_your_own(capsys: pytest.CaptureFixture[str]) -> None:
    first, _, _, *rows = lines_of("write_your_own.py", capsys)
    assert first == ["conforms", "on:", "churn,", "changing,", "static"]
    accuracy = {" ".join(row[:-3]): float(row[-3]) for row in rows}
    assert accuracy["mine"] > accuracy["D-PSGD"] + 0.03
    assert accuracy["mine, one device broken"] < 0.5 < 0.85 < accuracy["mine, broken, clipped"]


def test_a_method_takes_less_than_30_lines() -> None:
    """The conformance suite takes one call."""
    source = (EXAMPLES / "write_your_own.py").read_text()
    (method,) = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    assert method.end_lineno is not None
    assert method.end_lineno - method.decorator_list[0].lineno + 1 < 30
    assert source.count("check(") == 1


def test_every_example_is_tested() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == [
        "own_data.py",
        "own_data_and_model.py",
        "own_model.py",
        "own_network.py",
        "theory.py",
        "timing.py",
        "write_your_own.py",
    ]
