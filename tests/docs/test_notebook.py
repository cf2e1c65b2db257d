"""The notebook of the documentation: it runs, its outputs are those that it is kept with."""

from __future__ import annotations

import importlib.util
import json
import re
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
_TAG = re.compile(r"<style.*?</style>|<[^>]*>", re.S)


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    found = importlib.util.spec_from_file_location("notebook", ROOT / "docs" / "notebook.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def described(outputs: list[Any]) -> list[Any]:
    """Return the kinds of some outputs, and their words; another processor rounds otherwise."""
    found = []
    for output in outputs:
        data = output.get("data", {"stream": output.get("text")})
        text = _TAG.sub(" ", data.get("text/html", ""))
        for kind in ("text/plain", "stream"):
            text += data.get(kind) or ""
        found.append((sorted(data), re.findall(r"[A-Za-z]{3,}", text)))
    return found


@pytest.mark.slow
def test_the_notebook_runs_and_shows_what_it_is_kept_with(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("nbclient")
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))
    kept = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(kept)
    fresh = tool.executed(kept, tmp_path)
    shown = 0
    for before, now in zip(kept.cells, fresh.cells, strict=True):
        outputs = before.get("outputs", [])
        assert described(now.get("outputs", [])) == described(outputs), before.source
        shown += len(outputs)
    assert shown >= 9
    assert len(list((tmp_path / "runs" / "notebook").glob("*-seed*"))) == 9


def test_the_notebook_names_no_folder_of_this_machine() -> None:
    text = NOTEBOOK.read_text()
    for folder in (Path.home(), ROOT, Path(tempfile.gettempdir()), Path("/home"), Path("/usr")):
        assert f"{folder}/" not in text


def test_the_notebook_as_a_page(tool: ModuleType) -> None:
    page = tool.markdown(json.loads(NOTEBOOK.read_text()))
    assert not page.startswith("# ")
    assert page.count("```python") >= 9
    assert page.count("data:image/png;base64,") == 1
    assert page.count("<svg") >= 3
    assert "## A comparison" in page
    assert "D-PSGD" in page
    for block in re.findall(r"^<div>\n.*?^</div>$", page, re.M | re.S):
        assert "\n\n" not in block
