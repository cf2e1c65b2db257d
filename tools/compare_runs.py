"""Compare the runs of two commits bit for bit, on this machine.

    python tools/compare_runs.py 407329f          # that commit against this checkout
    python tools/compare_runs.py 407329f --torch  # the same without compiled kernels

Every registered method runs for 20 rounds in the simulator, in float32 and float64, once in a
checkout of the other commit and once in this one. Models and measurements must be equal to the last
bit. Stored hashes would not do: floating-point sums differ between processors.

Exit code 0: all runs are equal. 1: some differ; each is listed with its largest difference.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 20
DEVICES = 12
DTYPES = ("float32", "float64")

# As in hatch_build.py.
FLAGS = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fPIC", "-shared"]

# Names of version 0.1.0 that have changed since.
RENAMED = {
    "nedic-ozdaglar": "dgd",
    "xiao-boyd": "fast-averaging",
    "koloskova": "local-sgd",
    "swarm": "swarm-sgd",
    "choco": "choco-sgd",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit", nargs="?", help="the commit to compare with")
    parser.add_argument("--torch", action="store_true", help="run without compiled kernels")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure is not None:
        measure(arguments.measure)
        return 0
    if arguments.commit is None:
        parser.error("give the commit to compare with")
    with tempfile.TemporaryDirectory() as folder:
        other = check_out(arguments.commit, Path(folder, "checkout"))
        before = run_in(other, Path(folder, "before.npz"), arguments.torch)
        after = run_in(ROOT, Path(folder, "after.npz"), arguments.torch)
    return report(before, after)


def check_out(commit: str, folder: Path) -> Path:
    """Export a commit into a folder and build its kernels."""
    folder.mkdir()
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit], check=True, capture_output=True
    )
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    if next(ROOT.glob("src/gossamer/*/kernels.so"), None) is not None:
        build_kernels(ROOT)
        build_kernels(folder)
    return folder


def build_kernels(checkout: Path) -> None:
    """Compile the kernels of a checkout, if they are older than a file of their source."""
    source = next(checkout.glob("src/gossamer/*/kernels.c"))
    target = source.with_suffix(".so")
    newest = max(file.stat().st_mtime for file in source.parent.glob("kernels*.[ch]"))
    if target.exists() and target.stat().st_mtime > newest:
        return
    if shutil.which("cc"):
        command = ["cc", *FLAGS, "-o", str(target), str(source), "-lm"]
        subprocess.run(command, check=True, capture_output=True)


def run_in(checkout: Path, target: Path, torch_only: bool) -> dict[str, np.ndarray[Any, Any]]:
    """Run every method with the package of a checkout; return the arrays that it wrote."""
    environment = dict(os.environ, PYTHONPATH=str(checkout / "src"), OMP_NUM_THREADS="1")
    if torch_only:
        environment["GOSSAMER_BACKEND"] = "torch"
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", str(target)]
    subprocess.run(command, check=True, env=environment, cwd=checkout)
    with np.load(target, allow_pickle=False) as arrays:
        return dict(arrays)


def report(before: dict[str, Any], after: dict[str, Any]) -> int:
    """Print every run that differs. Return the exit code."""
    wrong = 0
    for name in sorted(before.keys() | after.keys()):
        if name not in after or name not in before:
            side = "only in this checkout" if name in after else "only in the other commit"
            print(f"{name}: {side}")
            wrong += name not in after
            continue
        old = before[name]
        new = after[name]
        if old.dtype != new.dtype or old.shape != new.shape:
            print(f"{name}: {old.dtype}{old.shape} became {new.dtype}{new.shape}")
            wrong += 1
        elif old.tobytes() != new.tobytes():
            difference = np.abs(old.astype(np.float64) - new.astype(np.float64)).max()
            print(f"{name}: differs by up to {difference:.3g}")
            wrong += 1
    equal = len(before) - wrong
    print(json.dumps({"equal": equal, "different": wrong}))
    return 1 if wrong else 0


def measure(target: Path) -> None:
    """Run every method with the package that is imported here, and write its results."""

    if os.environ.get("GOSSAMER_BACKEND") == "torch":
        switch_kernels_off()
    else:
        use_best_kernels()
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name, study in studies().items():
        for dtype in DTYPES:
            for key, value in results(study, dtype).items():
                arrays[f"{name} {dtype} {key}"] = value
    np.savez(target, **arrays)  # type: ignore[arg-type]


def use_best_kernels() -> None:
    """Compute with the kernels of the best instruction set, as all commits do on one machine.

    Since 0.2.0 a measurement decides which implementation serves.
    """
    with suppress(ImportError):
        choice = importlib.import_module("gossamer.backend.choice")
        choice.use({})


def switch_kernels_off() -> None:
    """Do for version 0.1.0 what GOSSAMER_BACKEND does since."""
    for name in ("gossamer.kernels", "gossamer.backend"):
        with suppress(ImportError):
            module = importlib.import_module(name)
            if hasattr(module, "library"):
                module.library = None


def studies() -> dict[str, Any]:
    """Return one study per method, and some for combinations that have code of their own."""
    import gossamer as gs

    found = {}
    for name, algorithm in {**methods(), **combinations()}.items():
        found[name] = gs.Study(
            algorithm,
            network_for(algorithm),
            split=gs.OneLabel(),
            rounds=ROUNDS,
            threads=1,
            measure=gs.Measure(every=5),
        )
    problem = gs.LeastSquares(DEVICES, dimension=5, samples=9, heterogeneity=0.5)
    found["adom"] = gs.Study(
        gs.ADOM(),
        gs.Full(DEVICES),
        data=problem,
        model=gs.LinearRegression(),
        batch=0,
        rounds=ROUNDS,
        threads=1,
    )
    plain = gs.DPSGD(eta=0.05)
    for name, model in {"mlp": gs.Mlp((16,)), "cnn": gs.Cnn(), "svm": gs.Svm()}.items():
        found[f"d-psgd {name}"] = gs.Study(
            plain, gs.Random(DEVICES, 0.3), model=model, rounds=6, threads=1
        )
    found["d-psgd halfway"] = gs.Study(
        plain,
        gs.Random(DEVICES, 0.3) & gs.Churn(0.1, 0.5),
        rounds=ROUNDS,
        threads=1,
        timing=gs.Timing(compute=0.01, rate=1e6),
        measure=gs.Measure(every=5, at="after_mix"),
    )
    return found


def methods() -> dict[str, Any]:
    """Return every registered method but ADOM, with its default settings."""
    try:
        from gossamer.algorithms import registry
    except ImportError:
        from gossamer.algorithms.recipes import CATALOGUE

        made = {RENAMED.get(name, name): entry.make() for name, entry in CATALOGUE.items()}
    else:
        made = {name: entry.make() for name, entry in registry.METHODS.items()}
    made.pop("adom")
    return made


def combinations() -> dict[str, Any]:
    """Return methods with settings that take another path through the code."""
    import gossamer as gs

    found: dict[str, Any] = {}
    for p in (2.5, 3, 15, 101):
        found[f"wpm constant p={p}"] = wpm(p, 1e-3, gs.Constant())
        found[f"wpm power p={p}"] = wpm(p, 0.1, gs.Power())
        found[f"wpm matched p={p}"] = wpm(p, 0.05, gs.Matched())
        found[f"wpm safe p={p}"] = wpm(p, 0.05, gs.Safe())
    found["wpm robust p=15"] = wpm(15, 0.05, anchor=True)
    found["wpm falling"] = wpm(gs.Switch(5, 10), 0.05, anchor=True)
    found["wpm ratio"] = wpm(3, 0.01, gs.Ratio())
    found["wpm printed ratio"] = wpm(3, 0.01, gs.Ratio("printed"))
    found["wpm plain"] = wpm(3, 0.01, gs.Plain())
    found["d-psgd cosine"] = gs.DPSGD(gs.Cosine(0.1, 15))
    found["d-psgd aggregate"] = gs.DPSGD(0.05, gradient_at="aggregate")
    found["d-psgd adapt"] = gs.DPSGD(0.05, order="adapt-then-combine")
    found["momentum"] = momentum(0.9)
    found["guarded median"] = gs.Guarded(gs.DPSGD(0.05), gs.Median())
    found["guarded clip wpm"] = gs.Guarded(wpm(3, 0.05, anchor=True), gs.Clip(1.0))
    return found


def wpm(p: Any, eta: float, step: Any = None, anchor: bool = False) -> Any:
    """Return WPM with these settings; version 0.1.0 had other defaults."""
    import gossamer as gs

    return gs.WPM(p, eta, step=step or gs.Safe(), anchor=anchor)


def momentum(beta: float) -> Any:
    """Return a composition whose devices have momentum of their own, by any name it had."""
    import gossamer as gs

    if hasattr(gs, "SGD"):
        return gs.Composition(eta=0.05, optimizer=gs.SGD(beta))
    if hasattr(gs, "HeavyBall"):
        return gs.Composition(eta=0.05, direction=gs.HeavyBall(beta))
    from gossamer.algorithms import Momentum

    return gs.WPM(1, 0.05, direction=Momentum(beta))


def network_for(algorithm: Any) -> Any:
    """Return a changing network, or a static one for methods that need it."""
    import gossamer as gs

    changing = gs.Random(DEVICES, 0.3)
    try:
        algorithm.check(changing)
    except gs.InputError:
        return gs.Full(DEVICES)
    return changing


def results(study: Any, dtype: str) -> dict[str, np.ndarray[Any, Any]]:
    """Return the models and measurements of a run as arrays."""
    from dataclasses import replace

    import gossamer as gs

    try:
        run = gs.run(replace(study, dtype=dtype))
    except gs.Diverged as error:
        return {"diverged": np.array([error.round, error.device])}
    found = {f"model {name}": x.numpy() for name, x in run.models.items()}
    for name, column in run.metrics.items():
        values = np.array(column, dtype=np.float64)
        # Version 0.1.0 had an accuracy of NaN where there are no classes.
        if not np.isnan(values).all():
            found[f"metric {name}"] = values
    return found


if __name__ == "__main__":
    sys.exit(main())
