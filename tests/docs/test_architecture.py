"""docs/architecture.md and CONTRIBUTING.md: the code that they name exists, their examples run."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import test_layers

import gossamer as gs
from gossamer import testing
from gossamer._core import registry
from gossamer.algorithms import METHODS
from gossamer.study import spec

ROOT = Path(__file__).parents[2]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def steps() -> list[tuple[str, Path]]:
    """Return every name of the tables of steps with the file that should define it."""
    found = []
    for table in re.findall(r"<!-- steps -->\n(.*?)<!-- end -->", ARCHITECTURE, re.DOTALL):
        for row in table.splitlines()[2:]:
            _, _, names, link, _ = row.split("|")
            path = re.findall(r"\]\(\.\./(.*?)\)", link)[0]
            for name in re.findall(r"`([^`]+)`", names):
                found.append((name, ROOT / path))
    return found


@pytest.mark.parametrize(("name", "path"), steps(), ids=lambda value: str(value))
def test_a_step_is_in_the_code(name: str, path: Path) -> None:
    tree = ast.parse(path.read_text())
    body = tree.body
    for word in name.split("."):
        definitions = {}
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                definitions[node.name] = node
        assert word in definitions, f"{path} does not define {name}"
        body = definitions[word].body


def test_the_packages_are_those_of_the_layers() -> None:
    table = ARCHITECTURE.partition("## Packages")[2].partition("## Interfaces")[0]
    listed = []
    for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE):
        listed += re.findall(r"`(\w+)`", row)
    assert listed == [layer for layer in test_layers.LAYERS if layer != "__main__"]
    (line,) = re.findall(r"^    (errors draws .*)$", CONTRIBUTING, re.MULTILINE)
    assert line.split() == listed


@pytest.fixture
def _registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget what a test registers."""
    methods = dict(METHODS)
    parts = {section: dict(kinds) for section, kinds in registry.PARTS.items()}
    yield
    METHODS.clear()
    METHODS.update(methods)
    for section, kinds in parts.items():
        registry.PARTS[section].clear()
        registry.PARTS[section].update(kinds)


def module_of(title: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import the code block of CONTRIBUTING.md that shows this file."""
    block = re.findall(
        rf'^```python title="{re.escape(title)}"\n(.*?)^```', CONTRIBUTING, re.MULTILINE | re.DOTALL
    )[0]
    path = folder / Path(title).name
    path.write_text(block)
    name = f"contributing_{path.stem}"
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, name, module)
    found.loader.exec_module(module)
    return module


@pytest.mark.usefixtures("_registries")
def test_the_method_of_the_guide_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = module_of("src/gossamer/algorithms/sign_sgd.py", tmp_path, monkeypatch)
    testing.check(module.SignSGD())
    assert METHODS["sign-sgd"].label == module.SignSGD().label == "SignSGD"
    (study,) = spec.studies(spec.parse('rounds = 2\nalgorithm = { kind = "sign-sgd", eta = 0.02 }'))
    assert study.algorithm == module.SignSGD(eta=0.02)
    assert gs.run(study).summary["method"] == "SignSGD"


@pytest.mark.usefixtures("_registries")
def test_the_network_of_the_guide_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = module_of("src/gossamer/network/generators/random_graphs.py", tmp_path, monkeypatch)
    text = 'rounds = 2\nnetwork = { kind = "random-pairs", devices = 10 }'
    (study,) = spec.studies(spec.parse(text))
    assert study.network == module.RandomPairs(10)
    assert len(study.network.links(1)) == 5


def test_the_metric_of_the_guide_can_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    block = re.findall(r"^```python\n(.*?)^```", CONTRIBUTING, re.MULTILINE | re.DOTALL)[0]
    exec(compile(block, "CONTRIBUTING.md", "exec", dont_inherit=True), {"__name__": "__main__"})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["0", "10", "20"]


def test_every_make_target_of_the_guide_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make ([a-z-]+)`", CONTRIBUTING):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
