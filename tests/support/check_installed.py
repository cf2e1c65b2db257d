"""Check the gossamer that this Python imports: its version, its command, and a short run.

    python -P tests/support/check_installed.py

`-P` keeps this folder out of the import path.
"""

import ctypes
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import gossamer as gs


def main() -> None:
    assert importlib.metadata.version("gossamer") == gs.__version__
    command = [sys.executable, "-P", "-m", "gossamer", "--version"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert shown == f"gossamer {gs.__version__}\n", shown

    library = Path(gs.__file__).parent / "backend" / "kernels.so"
    if library.exists():
        ctypes.CDLL(str(library))  # raises OSError if it was built for another platform

    rounds = gs.run(gs.Study(rounds=2)).summary["rounds"]
    assert rounds == 2, rounds
    kernels = "with" if library.exists() else "without"
    print(f"gossamer {gs.__version__} runs in {gs.__file__}, {kernels} compiled kernels")


if __name__ == "__main__":
    main()
