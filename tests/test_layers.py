"""The shape of the package: layers, no cycles, a light import, no pickle, and examples that are
true.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import gossamer

ROOT = Path(gossamer.__file__).parent
FILES = {
    ".".join(("gossamer", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in sorted(ROOT.rglob("*.py"))
}

# From the bottom up: a layer imports only from those before it.
LAYERS = (
    "errors",
    "draws",
    "_core",
    "backend",
    "mirror",
    "network",
    "theory",
    "tasks",
    "algorithms",
    "engines",
    "testing",
    "results",
    "study",
    "fleet",
    "report",
    "cli",
    "__main__",
)
MAY_IMPORT = {layer: set(LAYERS[:number]) for number, layer in enumerate(LAYERS)}
MAY_IMPORT["network"] -= {"mirror"}
MAY_IMPORT["tasks"] -= {"network", "theory"}  # what is learned knows nothing of networks
MAY_IMPORT["algorithms"] -= {"tasks", "theory"}  # an algorithm sees `mix` and `grad` only
QUICK = (
    "gossamer.errors",
    "gossamer.draws",
    "gossamer.mirror",
    "gossamer.network",
    "gossamer.theory",
    "gossamer.algorithms",
)
HEAVY = (
    "torch",
    "scipy",
    "matplotlib",
    "pandas",
    "pyarrow",
    "networkx",
    "sklearn",
    "pydantic",
    "pooch",
    "safetensors",
    "numpy",
)


def part(module: str) -> str:
    """The layer that a module belongs to: gossamer.network.files is of "network"."""
    return module.split(".")[1] if "." in module else ""


def imports(module: str, runtime: bool = False) -> set[str]:
    """All modules of ours that a module imports, anywhere in it; `runtime`: not those for the type
    checker alone.
    """
    tree = ast.parse(FILES[module].read_text(encoding="utf-8"))
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if runtime and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for statement in node.body:
                skipped.update(ast.walk(statement))
    found = set()
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                found.add(alias.name)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            for alias in node.names:
                # `from gossamer.network import base` is the module, not the package's attribute.
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in FILES else str(node.module))
    return {name for name in found if name.split(".")[0] == "gossamer"} - {module}


@pytest.mark.parametrize("module", FILES)
def test_a_module_imports_only_from_the_layers_above_it(module: str) -> None:
    if module == "gossamer":
        assert not imports(module)
        return
    own = part(module)
    assert own in MAY_IMPORT, f"{own} is not a layer of DESIGN.md"
    for name in imports(module):
        assert name in FILES, f"{module} imports {name}, which is not there"
        if name == "gossamer":
            # Its lazy names would hide what is imported: only what it defines itself.
            assert own == "cli" or module == "gossamer._core.versions"
        else:
            assert part(name) in MAY_IMPORT[own] | {own}


def test_no_import_cycles() -> None:
    try:
        TopologicalSorter({module: imports(module, runtime=True) for module in FILES}).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def loaded(statement: str) -> set[str]:
    """The top-level packages that a fresh Python has after a statement."""
    script = (
        f"{statement}; import sys; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    )
    return set(
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_import_gossamer_is_light() -> None:
    assert not loaded("import gossamer; dir(gossamer); gossamer.InputError") & set(HEAVY)


def test_the_command_starts_light() -> None:
    assert not loaded("import gossamer.cli.app") & (set(HEAVY) - {"numpy"})


def test_the_mathematics_of_links_needs_numpy_alone() -> None:
    statement = (
        "import gossamer.network, gossamer.theory; "
        "from gossamer import Random; Random(10, 0.2).links(3)"
    )
    assert not loaded(statement) & (set(HEAVY) - {"numpy"})


def test_every_public_name_is_there() -> None:
    assert "WPM" in gossamer.__all__
    for name in gossamer.__all__:
        assert getattr(gossamer, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Wpm'"):
        gossamer.Wpm  # noqa: B018


@pytest.mark.parametrize("module", FILES)
def test_no_pickle(module: str) -> None:
    tree = ast.parse(FILES[module].read_text(encoding="utf-8"))
    forbidden = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                assert alias.name.split(".")[0] not in forbidden
        if isinstance(node, ast.ImportFrom):
            assert str(node.module).split(".")[0] not in forbidden
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in {"torch.load", "torch.save"}
            allowed = {}
            for keyword in node.keywords:
                allowed[keyword.arg] = ast.unparse(keyword.value)
            assert allowed.get("allow_pickle", "False") == "False"


@pytest.mark.parametrize("module", [name for name in FILES if not name.endswith("__main__")])
def test_examples_in_docstrings_are_true(module: str) -> None:
    results = doctest.testmod(importlib.import_module(module), verbose=False)
    assert results.failed == 0


def test_the_mathematics_has_examples() -> None:
    attempted = []
    for name in FILES:
        if name.startswith(QUICK):
            attempted.append(doctest.testmod(importlib.import_module(name)).attempted)
    assert sum(attempted) > 20
