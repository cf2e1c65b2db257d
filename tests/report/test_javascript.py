"""The JavaScript of the pages: a lint, and its unit tests in Node."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gossamer.report import page

WEB = Path(page.__file__).parent / "web"
TESTS = Path(__file__).parent / "web"
MAINS = ("report", "live")
SOURCES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(WEB.glob("*.js"))}
IMPORT = re.compile(r'(?m)^import \{([^}]*)\} from "\./(\w+)\.js";')
EXPORT = re.compile(r"(?m)^export (?:async )?(?:function\*?|const) (\w+)")
# What would run data as code, or is never right.
FORBIDDEN = {
    r"\.innerHTML|\.outerHTML|insertAdjacentHTML|document\.write": "markup from text",
    r"\beval\(|new Function\(|setTimeout\(\s*[\"'`]": "code from text",
    r"setAttribute\(\"(style|on\w+)\"": "what the page's policy forbids",
    r"(?<![=!])==(?!=)(?! null)|!=(?!=)(?! null)": "== other than with null",
    r"(?m)^\s*var |\bdebugger\b|console\.": "left from debugging",
    r"https?://(?!www\.w3\.org/2000/svg)": "an address",
}


def imports(source: str) -> list[tuple[str, str]]:
    """Return the imported names of a module, each with its module."""
    found = []
    for names, module in IMPORT.findall(source):
        found += [(name.strip(), module) for name in names.split(",") if name.strip()]
    return found


def code(source: str) -> str:
    """Return a module without comments and without its imports."""
    return re.sub(r"(?m)^import [^;]*;|//.*$|/\*[\s\S]*?\*/", "", source)


@pytest.mark.parametrize("name", SOURCES)
def test_a_module_imports_what_it_uses_from_those_before_it(name: str) -> None:
    order = [*page._MODULES, *MAINS]
    assert name in order
    assert "import * as" not in SOURCES[name]
    body = code(SOURCES[name])
    for imported, module in imports(SOURCES[name]):
        assert order.index(module) < order.index(name), module
        assert module not in MAINS
        assert imported in EXPORT.findall(SOURCES[module])
        assert re.search(rf"(?<!\w)(?<![^.]\.){re.escape(imported)}\b", body), (
            f"{imported} is not used"
        )


def test_what_is_exported_is_used_elsewhere() -> None:
    texts = dict(SOURCES)
    for path in TESTS.glob("*.mjs"):
        texts[path.name] = path.read_text(encoding="utf-8")
    for name, source in SOURCES.items():
        for exported in EXPORT.findall(source):
            others = [text for other, text in texts.items() if other != name]
            used = any(re.search(rf"\b{exported}\b", text) for text in others)
            assert used, f"{name}.js exports {exported}"


@pytest.mark.parametrize("name", SOURCES)
def test_a_module_has_no_forbidden_construct(name: str) -> None:
    body = re.sub(r"(?m)//(?! ?http).*$|/\*[\s\S]*?\*/", "", SOURCES[name])
    for pattern, why in FORBIDDEN.items():
        found = re.search(pattern, body)
        assert found is None, f"{why}: {found}"


@pytest.mark.parametrize("name", SOURCES)
def test_modules_are_short_and_public_functions_described(name: str) -> None:
    source = SOURCES[name]
    assert source.count("\n") <= 420
    assert source.startswith("//")
    for found in re.finditer(r"(?m)^(.*)\nexport (?:async )?function", source):
        assert found[1].rstrip().endswith("*/"), found[0]


def run_node(*words: str | Path) -> subprocess.CompletedProcess[str]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node: the unit tests of the JavaScript need version 20 or later")
    return subprocess.run([node, *words], capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("main", MAINS)
def test_the_script_of_a_page_is_whole(main: str, tmp_path: Path) -> None:
    path = tmp_path / "page.mjs"
    path.write_text(page.script(main), encoding="utf-8")
    done = run_node("--check", path)
    assert done.returncode == 0, done.stderr


def test_unit_tests_pass_in_node() -> None:
    tests = sorted(TESTS.glob("*.test.mjs"))
    assert len(tests) >= 4
    done = run_node("--test", *tests)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
