"""Builds the kernels with the package, if there is a C compiler. Without one the package is complete, but slower."""

from __future__ import annotations

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fPIC", "-shared"]


class KernelBuildHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = Path(self.root, "src", "gossamer", "backend")
        target = folder / "kernels.so"
        command = [
            *shlex.split(os.environ.get("CC", "cc")),
            *FLAGS,
            "-o",
            str(target),
            str(folder / "kernels.c"),
            "-lm",
        ]
        target.unlink(missing_ok=True)
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            why = (
                error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else error
            )
            self.app.display_warning(f"gossamer is built without its kernels, and slower: {why}")
            return
        build_data["artifacts"].append("src/gossamer/backend/kernels.so")
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(
            ".", "_"
        )
