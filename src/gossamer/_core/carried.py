"""Send the user's own code to other machines, with the objects that need it.

Objects are pickled for processes that the caller controls, such as those of a Ray cluster. Nothing
that is read from a disk is unpickled.
"""

from __future__ import annotations

import atexit
import hashlib
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

_PACKAGE = "gossamer"
_files_too: ContextVar[bool] = ContextVar("files_too", default=False)
_unpacked: dict[str, Path] = {}  # folders of files that this process has received, by digest


@contextmanager
def carrying_own_code(cloudpickle: Any, modules_too: bool) -> Iterator[None]:
    """Pickle the user's own code with what needs it, until the end of the block.

    Files that a spec names are sent as files.

    Args:
        cloudpickle: The module that pickles.
        modules_too: Whether to send also the modules that are not installed, but beside a script
            or on PYTHONPATH: another machine lacks them.
    """
    modules = []
    if modules_too:
        modules = own_modules()
    token = _files_too.set(True)
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        _files_too.reset(token)
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def carries_files() -> bool:
    """True if files of own code are to be pickled with the parts that name them."""
    return _files_too.get()


def own_modules() -> list[ModuleType]:
    """Return the loaded modules that are neither installed nor of gossamer or Python itself."""
    installed = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
    installed.append(Path(sys.modules[_PACKAGE].__path__[0]))
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or name in ("__main__", "__mp_main__"):
            continue
        if getattr(module, "__name__", None) != name or name.startswith("gossamer_code_"):
            continue  # an alias, or a module of a spec, whose files are sent
        path = Path(file)
        if "site-packages" in path.parts or "dist-packages" in path.parts:
            continue
        if not any(path.is_relative_to(folder) for folder in installed):
            found.append(module)
    return found


def folder_of(files: dict[str, bytes]) -> Path:
    """Write files that this process has received into a folder of its own.

    Args:
        files: The contents by their relative paths.

    Returns:
        The folder, which is removed when the process ends.
    """
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(name.encode() + b"\0" + hashlib.sha256(files[name]).digest())
    key = digest.hexdigest()
    if key not in _unpacked:
        folder = _temporary_folder() / key[:16]
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        _unpacked[key] = folder
    return _unpacked[key]


@cache
def _temporary_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="gossamer-code-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
