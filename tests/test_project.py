"""Files around the package agree with it: version, citation, changelog, workflows, hooks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import gossamer
from gossamer._core.versions import version

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.M))


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_version_is_defined_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/gossamer/__init__.py"
    assert version("gossamer") == gossamer.__version__


def test_the_citation_has_the_version() -> None:
    assert load(ROOT / "CITATION.cff")["version"] == gossamer.__version__


def test_the_changelog_has_the_version() -> None:
    headings = re.findall(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] == "Unreleased"
    assert headings[1] == gossamer.__version__


def test_security_fixes_are_promised_for_this_version() -> None:
    minor = ".".join(gossamer.__version__.split(".")[:2])
    assert f"| {minor}.x | yes |" in (ROOT / "SECURITY.md").read_text()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_existing_make_targets(path: Path) -> None:
    called = set()
    for job in load(path)["jobs"].values():
        for step in job["steps"]:
            for line in re.findall(r"^make ([a-z -]+)", step.get("run", ""), re.M):
                called |= set(line.split())
    assert called
    assert called <= TARGETS


def test_the_matrix_has_all_python_versions() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    supported = []
    for c in classifiers:
        if "Python :: 3." in c:
            supported.append(c.rpartition(" ")[2])
    jobs = load(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
    for name in ("linux", "macos"):
        assert jobs[name]["strategy"]["matrix"]["python"] == supported


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_has_a_version(path: Path) -> None:
    for action in re.findall(r"uses: (\S+)", path.read_text()):
        assert re.search(r"@(v\d+|release/v\d+)$", action), action


def test_hooks_use_the_tools_of_the_project() -> None:
    local, *_ = load(ROOT / ".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    for hook in local["hooks"]:
        assert hook["entry"].startswith(".venv/bin/"), hook["id"]


SCRIPTS = sorted(
    path
    for folder in ("benchmarks", "benchmarks/peers", "tools")
    for path in (ROOT / folder).glob("*.py")
    if "ArgumentParser" in path.read_text()
)


# Asks every script for its help, in one process: most load torch.
HELP = """
import contextlib, io, json, runpy, sys
from pathlib import Path

found = {}
for path in sys.argv[1:]:
    sys.argv = [path, "--help"]
    sys.path.insert(0, str(Path(path).parent))
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        runpy.run_path(path, run_name="__main__")
    sys.path.pop(0)
    for name, module in list(sys.modules.items()):  # helpers beside the script, if any
        if str(Path(path).parent) in str(getattr(module, "__file__", "")):
            del sys.modules[name]
    found[path] = out.getvalue()
print(json.dumps(found))
"""


@pytest.mark.slow
def test_scripts_start() -> None:
    """Their imports exist, and they print how they are used."""
    command = [sys.executable, "-P", "-c", HELP, *map(str, SCRIPTS)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == [str(path) for path in SCRIPTS]
    for path, text in found.items():
        assert text.startswith("usage: "), path


def test_the_manifest_for_kubernetes_fits_the_schema_of_the_operator() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "tests" / "support" / "rayjob_schema.json").read_text())
    manifest = load(ROOT / "deploy" / "kuberay.yaml")
    jsonschema.validate(manifest, schema)
    assert manifest["spec"]["rayClusterSpec"]["authOptions"] == {"mode": "token"}

    (workers,) = manifest["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    (container,) = workers["template"]["spec"]["containers"]
    container["resource"] = container.pop("resources")
    with pytest.raises(jsonschema.ValidationError, match="'resource' was unexpected"):
        jsonschema.validate(manifest, schema)


def test_the_file_of_the_launcher_fits_the_schema_of_ray() -> None:
    util = pytest.importorskip("ray.autoscaler._private.util")
    config = load(ROOT / "deploy" / "ray-cluster.yaml")
    util.validate_config(util.prepare_config(config))
    workers = config["provider"]["worker_ips"]
    assert config["min_workers"] == config["max_workers"] == len(workers)
    with pytest.raises(Exception, match="worker_ip"):
        util.validate_config(config | {"provider": {"type": "local", "worker_ip": workers}})
