"""The examples run without warnings and show the expected results."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

import gossamer as gs

EXAMPLES = Path(__file__).parents[2] / "examples"


def lines_of(name: str, capsys: pytest.CaptureFixture[str], *options: str) -> list[list[str]]:
    """Return the words of every line that an example prints."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", [name, *options])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def first_words(rows: list[list[str]]) -> list[str]:
    return [row[0] for row in rows]


def numbers(row: list[str]) -> list[float]:
    return [float(word) for word in row if word.replace(".", "").isdigit()]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::gossamer.NetworkWarning")  # two devices rarely meet
def test_language_model(capsys: pytest.CaptureFixture[str]) -> None:
    options = "--devices 2 --steps 4 --local-steps 2 --tune 0"
    _, *rows = lines_of("language_model.py", capsys, *options.split())
    assert len(rows) == 6
    for row in rows:
        device, worst, merged = map(float, row[-4:-1])
        # A character of 128 is 7 bits.
        assert max(device, worst, merged) < 6.5
        assert device <= worst


@pytest.mark.slow
def test_own_data(capsys: pytest.CaptureFixture[str]) -> None:
    _, *rows = lines_of("own_data.py", capsys)
    assert first_words(rows) == ["D-PSGD", "Tracking"]
    for *_, worst in rows:
        assert float(worst) > 0.85


@pytest.mark.slow
def test_own_data_and_model(capsys: pytest.CaptureFixture[str]) -> None:
    head, *rows = lines_of("own_data_and_model.py", capsys)
    assert head[:2] == ["method", "accuracy"]
    assert first_words(rows) == ["D-PSGD", "WPM", "All-Reduce"]
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
    (_, squared), (_, huber) = rows
    # Readings that are far off pull the squared loss away, and not the other.
    assert float(huber) < 0.15 < float(squared)


@pytest.mark.slow
def test_own_network(capsys: pytest.CaptureFixture[str]) -> None:
    _, *rows = lines_of("own_network.py", capsys)
    assert first_words(rows) == ["graphs", "function", "log"]
    graphs, function, log = rows
    # The more links, the better.
    assert float(graphs[3]) > float(log[3]) > float(function[3]) > 0.15
    assert function[1:3] == ["1.0", "9"]  # nine units, one after the other


@pytest.mark.slow
def test_theory(capsys: pytest.CaptureFixture[str]) -> None:
    words = lines_of("theory.py", capsys)
    assert words[0][:4] == ["Assumption", "1", "holds:", "True."]
    rows = []
    for line in words:
        if line and line[0].isdigit():
            rows.append(line)
    assert first_words(rows) == ["1", "3", "5"]
    for _, _, measured, bound in rows:
        assert 0 < float(measured) < float(bound)


@pytest.mark.slow
def test_timing(capsys: pytest.CaptureFixture[str]) -> None:
    _, *rows = lines_of("timing.py", capsys)
    first, second = rows
    rounds, sent, slow, fast = numbers(first)
    more_rounds, less_sent, quicker, slower = numbers(second)
    assert more_rounds > rounds
    assert less_sent < sent
    assert quicker < slow  # fewer bytes win where links are slow
    assert slower > fast  # and fewer rounds where they are not


@pytest.mark.slow
def test_write_your_own(capsys: pytest.CaptureFixture[str]) -> None:
    first, _, _, *rows = lines_of("write_your_own.py", capsys)
    assert first == ["conforms", "on:", "churn,", "changing,", "static"]
    accuracy = {}
    for row in rows:
        accuracy[" ".join(row[:-3])] = float(row[-3])
    assert accuracy["mine"] > accuracy["D-PSGD"] + 0.03
    assert accuracy["mine, one device broken"] < 0.5 < 0.85 < accuracy["mine, broken, clipped"]


@pytest.mark.slow
def test_lora_adapters(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {}
    for row in lines_of("lora_adapters.py", capsys, "--quick")[2:]:
        rows[" ".join(row[:-5])] = row[-4:]
    assert len(rows) == 6
    parameters, sent, *_ = rows["D-PSGD"]
    all_parameters, all_sent, *_ = rows["D-PSGD, all weights"]
    assert int(all_parameters.replace(",", "")) > 5 * int(parameters.replace(",", ""))
    assert float(all_sent) > 5 * float(sent) > 0
    assert float(rows["no links"][1]) == 0


def test_a_method_takes_less_than_30_lines() -> None:
    """The conformance suite takes one call."""
    source = (EXAMPLES / "write_your_own.py").read_text()
    (method,) = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    assert method.end_lineno is not None
    assert method.end_lineno - method.decorator_list[0].lineno + 1 < 30
    assert source.count("check(") == 1


def test_every_example_is_tested() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == [
        "inference_beside_node.py",
        "language_model.py",
        "lora_adapters.py",
        "own_code.py",
        "own_data.py",
        "own_data_and_model.py",
        "own_model.py",
        "own_network.py",
        "theory.py",
        "timing.py",
        "write_your_own.py",
    ]
