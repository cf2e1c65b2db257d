"""A method in a file of its own is found everywhere."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gossamer
from gossamer._core.registry import kind_of, kinds, register
from gossamer.algorithms import DPSGD, METHODS

FILE = '''"""A method of a test."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gossamer.algorithms.base import Algorithm, Gradient, Mix, State
from gossamer.algorithms.registry import method


@method("lazy-sgd", label="Lazy SGD", paper="A test, 2026")
@dataclass(frozen=True)
class LazySGD(Algorithm):
    """D-PSGD that mixes half."""

    eta: float = 0.05

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        w = state["w"]
        return {"w": (w + mix(w)) / 2 - self.eta * grad(w)}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return (state["w"] + mix(state["w"])) / 2
'''
SCRIPT = """
import gossamer as gs
from gossamer.study import spec
from gossamer.study.space import candidate, searched
from gossamer.study.tune import choose, fit_methods
from gossamer.testing import check

assert "LazySGD" in dir(gs)
assert "LazySGD" in gs.__all__
assert gs.METHODS["lazy-sgd"].make is gs.LazySGD
study = spec.studies({"algorithm": {"kind": "lazy-sgd", "eta": 0.1}, "rounds": 3})[0]
assert study.algorithm == gs.LazySGD(0.1)
written = spec.to_table(study, defaults=False)["algorithm"]
assert written == {"kind": "lazy-sgd", "eta": 0.1}
assert spec.to_table(study)["algorithm"]["optimizer"]["kind"] == "sgd"
assert gs.run(study).label == "Lazy SGD"
assert gs.METHODS["lazy-sgd"] in searched()
assert "lazy-sgd" in fit_methods(study).methods
assert [method.name for method in choose(["lazy-sgd"])] == ["lazy-sgd"]
assert candidate(gs.METHODS["lazy-sgd"], 0).label == "Lazy SGD \u03b7=0.0447"
assert check(gs.LazySGD()) == ["churn", "changing", "static"]
"""


@pytest.mark.slow
def test_a_method_in_one_file_is_found_everywhere(tmp_path: Path) -> None:
    """In specs, exports, `tune`, tables, `gossamer methods` and the index of the documentation."""
    root = Path(gossamer.__file__).parents[2]
    package = tmp_path / "src" / "gossamer"
    shutil.copytree(Path(gossamer.__file__).parent, package)
    shutil.copytree(root / "docs", tmp_path / "docs")
    (package / "algorithms" / "lazy_sgd.py").write_text(FILE)

    def python(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={
                "PYTHONPATH": str(package.parent),
                "OMP_NUM_THREADS": "1",
                "PATH": "/usr/bin:/bin",
            },
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    python("-c", SCRIPT)
    assert "lazy-sgd" in python("-m", "gossamer", "methods")
    python("docs/blocks.py", "docs/methods/index.md")
    row = "| [lazy-sgd](lazy-sgd.md) | [lazy_sgd.py](../../src/gossamer/algorithms/lazy_sgd.py) |"
    assert row in (tmp_path / "docs" / "methods" / "index.md").read_text()


def test_one_name_per_method() -> None:
    for name, method in METHODS.items():
        assert kinds("algorithm")[name] is method.make
        assert kind_of("algorithm", method.make()) == name
        spelled = name.replace("-", "").replace("2", "2").casefold()
        assert method.make.__name__.casefold() == spelled
        assert method.make().label.startswith(method.label)
    labels = [method.label for method in METHODS.values()]
    assert len(set(labels)) == len(labels)


def test_two_classes_cannot_have_one_name() -> None:
    with pytest.raises(ValueError, match="has a kind 'd-psgd' already: DPSGD"):

        @register("algorithm", "d-psgd")
        class Another:
            pass

    assert kinds("algorithm")["d-psgd"] is DPSGD
