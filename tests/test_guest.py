"""A run leaves the process of its host as it found it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

# Runs in a process of its own. `ctypes.CDLL` is watched because mallopt's settings cannot be read:
# the only way to be sure that they are unchanged is that nothing asks the C library for mallopt.
SCRIPT = """
import ctypes, gc, json, locale, logging, os, signal, sys, warnings
import numpy, torch

functions = []
get_function = ctypes.CDLL.__getattr__
def watched(library, name):
    functions.append(name)
    return get_function(library, name)
ctypes.CDLL.__getattr__ = watched

MODULES = ("torch", "torch.nn", "torch.nn.functional", "torch.func", "torch.distributed", "numpy",
           "signal", "os", "threading", "multiprocessing", "concurrent.futures", "warnings",
           "random")

def modules():
    found = {}
    for name in MODULES:
        if name in sys.modules:
            attributes = vars(sys.modules[name]).items()
            found[name] = {key: id(value) for key, value in attributes if callable(value)}
    return found

def state():
    return {
        "environment": dict(os.environ),
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "torch": [str(torch.get_default_dtype()), torch.is_grad_enabled(),
                  torch.are_deterministic_algorithms_enabled(), torch.is_inference_mode_enabled()],
        "random": [torch.random.get_rng_state().sum().item(), str(numpy.random.get_state()[1][:5])],
        "warnings": [str(one) for one in warnings.filters],
        "signals": {int(n): str(signal.getsignal(n)) for n in signal.valid_signals()},
        "logging": [
            logging.getLogger().level, logging.getLogger("ray").level, logging.raiseExceptions,
        ],
        "gc": [gc.get_threshold(), gc.isenabled()],
        "floating point": str(numpy.geterr()),
        "excepthook": str(sys.excepthook),
        "path": list(sys.path),
        "folder": os.getcwd(),
        "umask": (os.umask(0o022), os.umask(0o022))[1],
    }

torch.set_num_threads(THREADS)
import gossamer as gs
changes = {}
for name, statement in RUNS.items():
    before = state()
    # Modules may gain names while submodules load: what was there before must be unchanged.
    modules_before = modules()
    exec(statement)
    after = state()
    modules_after = modules()
    changed = [name for name in before if before[name] != after[name]]
    for module, attributes in modules_before.items():
        for key, value in attributes.items():
            if modules_after[module].get(key) != value:
                changed.append(f"{module}.{key}")
    changes[name] = changed
print(json.dumps({"changes": changes, "mallopt": "mallopt" in functions}))
"""

RUNS = {
    "run": "gs.run(gs.Study(gs.WPM(15, 0.05), gs.Random(6, 0.5), rounds=5, threads=2))",
    "module": (
        "gs.run(gs.Study(gs.DPSGD(0.05), gs.Ring(6), model=gs.Mlp((8,), dropout=0.5), rounds=3))"
    ),
    "folder": "gs.run(gs.Study(gs.DPSGD(0.05), gs.Ring(6), rounds=5), out='out')",
    "compare": "gs.compare([gs.Study(gs.DPSGD(0.05), gs.Ring(6), rounds=5)], seeds=2)",
    "simulator": (
        "study = gs.Study(gs.DPSGD(0.05), gs.Ring(6), rounds=5, threads=2); "
        "gs.Simulator(study.plan()).record()"
    ),
    "diverged": """
try:
    gs.run(gs.Study(gs.DPSGD(1e30), gs.Ring(6), rounds=50, threads=2))
except gs.Diverged:
    pass
""",
}


@pytest.mark.parametrize("threads", [1, 3])
def test_a_run_leaves_the_process_as_it_was(
    threads: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All runs in one process, which has to load torch: the state is compared around each."""
    script = SCRIPT.replace("THREADS", str(threads)).replace("RUNS", repr(RUNS))
    folder = tmp_path_factory.mktemp("host")
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=folder, timeout=200
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert list(found["changes"]) == list(RUNS)
    assert not any(found["changes"].values()), found["changes"]
    assert not found["mallopt"]


def test_importing_changes_nothing() -> None:
    """Not even the environment, before torch is there."""
    script = """
import os
before = dict(os.environ)
import gossamer as gs
[getattr(gs, name) for name in gs.__all__]
assert dict(os.environ) == before
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_command_configures_its_own_process() -> None:
    script = """
import os, sys
from gossamer.cli import main
sys.argv = ["gossamer", "--version"]
try:
    main()
finally:
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
"""
    environment = {"PATH": "", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
