"""The kernels for ARM, built by Debian's cross compiler and run by an emulator.

The same program, built for this processor, has to write the same numbers. The other tests compare
the kernels of this processor with plain torch.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gossamer.backend import loader
from gossamer.backend.choice import KERNELS

COMPILER = "aarch64-linux-gnu-gcc"
EMULATOR = "qemu-aarch64"
FLAGS = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-Wno-psabi"]


def output(folder: Path, compiler: str, name: str, *emulator: str) -> np.ndarray[Any, Any]:
    """Return what the driver writes with the kernels of an instruction set."""
    program = folder / name
    source = loader.PATH.with_name("kernels.c")
    options = [*FLAGS, "-static", f'-DKERNELS="{source}"', f"-DSET={name}"]
    driver = str(Path(__file__).with_name("kernels_driver.c"))
    subprocess.run([compiler, *options, "-o", str(program), driver, "-lm"], check=True)
    done = subprocess.run([*emulator, str(program)], check=True, capture_output=True, timeout=60)
    return np.frombuffer(done.stdout, np.float32)


@pytest.mark.skipif(not KERNELS, reason="there is nothing to compare with: only plain torch here")
def test_neon_computes_the_same(tmp_path: Path) -> None:
    for tool in (COMPILER, EMULATOR, "gcc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed (gcc-aarch64-linux-gnu, qemu-user)")
    expected = output(tmp_path, "gcc", next(iter(KERNELS)))
    found = output(tmp_path, COMPILER, "neon", EMULATOR)
    assert len(found) > 20_000
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)
