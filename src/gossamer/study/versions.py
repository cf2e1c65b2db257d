"""The versions that the numbers of a run depend on."""

from __future__ import annotations

import platform

from gossamer import backend
from gossamer._core.versions import version


def versions() -> dict[str, str]:
    """Return the versions of packages, Python, machine and compiled kernels by name."""
    found = {}
    for package in ("gossamer", "torch", "numpy"):
        found[package] = version(package)
    found["python"] = platform.python_version()
    found["machine"] = platform.machine()
    found["kernels"] = "compiled"
    if not backend.library:
        found["kernels"] = (
            "none: gossamer was installed without GCC, or for a processor without AVX2"
        )
    return found
