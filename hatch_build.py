"""Hatch build hook that compiles the C kernels into the wheel.

Without a C compiler the build still succeeds: the wheel is then pure Python (`py3-none-any`) and
the package uses plain torch operations. The kernels do not use Python's C API (they are loaded
with ctypes), so one wheel per platform serves every Python version: its tag is
`py3-none-<platform>`.

The kernels are used on x86-64 if GCC built them, and on ARM with any compiler. On other platforms
the library loads, has no kernels, and plain torch operations run instead.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fPIC", "-shared"]
SLOWER = "2.1"  # one thread, batches of 128: benchmarks/speed.py with GOSSAMER_BACKEND=torch
LIBRARY = "src/gossamer/backend/kernels.so"
SOURCE = "src/gossamer/backend/kernels.c"


class KernelBuildHook(BuildHookInterface[Any]):
    """Compile the kernels before the files of the wheel are collected."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the kernels and mark the wheel as one for this platform.

        Args:
            version: "standard" or "editable".
            build_data: Hatch's settings of this build, changed in place.
        """
        # sysconfig honours _PYTHON_HOST_PLATFORM, by which cibuildwheel names the target platform.
        platform = sysconfig.get_platform()
        library = Path(self.root, LIBRARY)
        command = [
            *shlex.split(os.environ.get("CC", "cc")),
            *FLAGS,
            *architecture_flags(platform),
            "-o",
            str(library),
            str(Path(self.root, SOURCE)),
            "-lm",
        ]
        library.unlink(missing_ok=True)
        try:
            subprocess.run(
                command, check=True, capture_output=True, text=True, env=environment(platform)
            )
        except subprocess.CalledProcessError as error:
            self.warn(error.stderr.strip() or str(error))
            return
        except OSError as error:
            self.warn(str(error))
            return
        build_data["artifacts"].append(LIBRARY)
        build_data["pure_python"] = False
        # auditwheel replaces linux_* by the manylinux or musllinux tag that the library meets.
        build_data["tag"] = "py3-none-" + platform.replace("-", "_").replace(".", "_")

    def warn(self, reason: str) -> None:
        """Say that the wheel has no kernels."""
        self.app.display_warning(
            "gossamer is built without its kernels; softmax regression on MNIST, 100 devices, then "
            f"takes {SLOWER} times as long on an AMD EPYC: {reason}"
        )


def architecture_flags(platform: str) -> list[str]:
    """Return the compiler flags that select the processors that the wheel is named for.

    Only macOS needs them: there one compiler serves several processors, and a wheel may be built
    for another than this machine's (ARCHFLAGS), or for both ("universal2").
    """
    if sys.platform != "darwin":
        return []
    if "ARCHFLAGS" in os.environ:
        return shlex.split(os.environ["ARCHFLAGS"])
    if platform.endswith("universal2"):
        return ["-arch", "x86_64", "-arch", "arm64"]
    return []


def environment(platform: str) -> dict[str, str]:
    """Return the compiler's environment: on macOS, with the oldest system that the tag names."""
    variables = dict(os.environ)
    if sys.platform == "darwin":
        variables.setdefault("MACOSX_DEPLOYMENT_TARGET", platform.split("-")[1])
    return variables
