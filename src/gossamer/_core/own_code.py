"""Import the user's own code by file: "my_model:make" in a folder that the user names.

A module is loaded under a name of its own, so that it can neither replace nor be taken for an
installed one: `model.py` of two folders are two modules. `sys.path` stays as it is. Files of the
folder that the module imports are found by reading the source, before anything of it is executed.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import re
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.machinery import FileFinder, ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from gossamer.errors import DataError, GossamerError, InputError, nearest

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_EXAMPLE = '"module:name", such as "my_model:make"'
_PREFIX = "gossamer_code_"
_DIGEST_DIGITS = 32  # hexadecimal, of SHA-256
_MAX_CHARACTERS = 300  # length to which the message of an exception is cut
_lock = threading.RLock()


class _Loader(SourceFileLoader):
    """Compile the source itself: a cached file may be that of an earlier version."""

    def get_code(self, fullname: str) -> CodeType | None:
        return self.source_to_code(self.get_data(self.path), self.path)


class _Finder:
    """Find modules of the user's folders: those inside packages of the prefix, always; and those
    that a module imports by their plain names, while it is loaded.
    """

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.names: frozenset[str] = frozenset()

    def find_spec(
        self, name: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.startswith(_PREFIX) and path:
            return _finder_in(Path(path[0])).find_spec(name)
        if self.folder is not None and name in self.names:
            return _finder_in(self.folder).find_spec(name)
        return None

    @contextmanager
    def serving(self, folder: Path, names: frozenset[str]) -> Iterator[None]:
        """Find files of a folder by their plain names too."""
        before = (self.folder, self.names)
        self.folder = folder
        self.names = names
        try:
            yield
        finally:
            self.folder, self.names = before


def _finder_in(folder: Path) -> FileFinder:
    return FileFinder(str(folder), (_Loader, [".py"]))


_finder = _Finder()
_loaded: dict[str, ModuleType] = {}  # modules that were loaded by their plain names


@dataclass(frozen=True)
class OwnCode:
    """An object in a Python file of a folder; nothing is executed before `load`.

    Args:
        name: "module:name"; the module is a file of the folder, and may be dotted.
        folder: The folder, absolute.

    Raises:
        InputError: If the name is not of this form, or there is no such file. The field is
            "object".

    Example:
        >>> OwnCode("my_model:make", Path("/nowhere"))
        Traceback (most recent call last):
        gossamer.errors.InputError: object = 'my_model:make' is not accepted: give a module in \
a folder; there is no folder /nowhere
    """

    name: str
    folder: Path

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InputError("object", self.name, _EXAMPLE)
        if not self.folder.is_dir():
            accepted = f"a module in a folder; there is no folder {self.folder}"
            raise InputError("object", self.name, accepted)
        if self.file is None:
            module = self.name.partition(":")[0]
            wanted = module.replace(".", "/") + ".py"
            hint = nearest(module, [file.stem for file in self.folder.glob("*.py")])
            accepted = f"a module in {self.folder}; there is no {wanted} in it{hint}"
            raise InputError("object", self.name, accepted)

    @property
    def file(self) -> Path | None:
        """The file of the module; None if there is none."""
        return _file_of(self.folder, self.name.partition(":")[0])

    @cached_property
    def _imports(self) -> _Imports:
        return _Imports.of(self.folder, self.file)

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The files that the module consists of, each with a digest: "my_model.py 3f2a…".

        They are the module's own file and the files of the folder that it imports.

        Raises:
            InputError: If a file is not Python. The field is "object".
        """
        with self._naming():
            found = []
            for file in sorted(self._imports.files):
                digest = hashlib.sha256(_bytes_of(file)).hexdigest()[:_DIGEST_DIGITS]
                found.append(f"{file.relative_to(self.folder).as_posix()} {digest}")
            return tuple(found)

    def contents(self) -> dict[str, bytes]:
        """Return the files that the module consists of, by their paths in the folder."""
        with self._naming():
            found = {}
            for file in sorted(self._imports.files):
                found[file.relative_to(self.folder).as_posix()] = _bytes_of(file)
            return found

    def load(self) -> Any:
        """Import the module, and return the object.

        Raises:
            InputError: If the module cannot be imported, or lacks the name. The field is "object".
        """
        module_name, _, path = self.name.partition(":")
        with _lock, self._naming():
            digest = hashlib.sha256("\n".join([str(self.folder), *self.sources]).encode())
            package = f"{_PREFIX}{digest.hexdigest()[:16]}"
            self._check_collisions()
            with self.refusing(), _finder.serving(self.folder, self._imports.names):
                module = _import(package, self.folder, module_name, self._imports.names)
        found: Any = module
        for part in path.split("."):
            try:
                found = getattr(found, part)
            except AttributeError:
                accepted = f"a name that {self.file} defines; it has no {part}"
                hint = nearest(part, [name for name in dir(found) if not name.startswith("_")])
                raise InputError("object", self.name, accepted + hint) from None
        return found

    @contextmanager
    def refusing(self, field: str = "object") -> Iterator[None]:
        """Turn what the user's code raises into one sentence with the file and the line.

        Args:
            field: The field that the sentence names.

        Raises:
            InputError: If the code raises anything but an error of gossamer.
        """
        try:
            yield
        except (Exception, SystemExit) as error:
            own = type(error).__module__.partition(".")[0] == "gossamer"
            # torch reports a lack of memory as a RuntimeError with this word.
            if own or isinstance(error, MemoryError) or "allocate" in str(error):
                raise
            accepted = f"code that does not raise; {self._describe(error)}"
            raise InputError(field, self.name, accepted) from error

    def _describe(self, error: BaseException) -> str:
        """Return the last line of a traceback, and the last line of the user's code in it."""
        said = " ".join(traceback.format_exception_only(error)[-1].split())[:_MAX_CHARACTERS]
        if isinstance(error, SyntaxError) and error.filename:
            return f"{self._shown(error.filename)}:{error.lineno} is not Python: {said}"
        place = str(self.file)
        for frame in traceback.extract_tb(error.__traceback__):
            if Path(frame.filename).is_relative_to(self.folder):
                place = f"{self._shown(frame.filename)}:{frame.lineno}"
        return f"{place} raised {said}"

    def _shown(self, file: str) -> str:
        path = Path(file)
        if path.is_relative_to(self.folder):
            path = path.relative_to(self.folder)
        return str(path)

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Turn a file that cannot be read or parsed into a sentence about the object."""
        try:
            yield
        except (SyntaxError, ValueError, RecursionError) as error:
            if isinstance(error, GossamerError):
                raise
            accepted = f"a module that is Python; {self._describe(error)}"
            raise InputError("object", self.name, accepted) from None

    def _check_collisions(self) -> None:
        """Refuse a file of the folder whose plain name stands for another module too."""
        for name in sorted(self._imports.names):
            other = _installed(name)
            if other is None or Path(other) == _file_of(self.folder, name):
                continue
            accepted = (
                f"modules with other names than installed ones: {self.folder / name}.py is "
                f"imported as {name}, which is {other} too; rename it, "
                f"or write `from . import {name}`"
            )
            raise InputError("object", self.name, accepted)


@dataclass(frozen=True)
class _Imports:
    """What a module imports of its own folder.

    Attributes:
        files: The module's file and all that it imports, directly or not.
        names: The modules that are imported by their plain names, as in `import blocks`.
    """

    files: frozenset[Path]
    names: frozenset[str]

    @classmethod
    def of(cls, folder: Path, first: Path | None) -> _Imports:
        files: set[Path] = set()
        names: set[str] = set()
        waiting = [first]
        while waiting:
            file = waiting.pop()
            if file is None or file in files:
                continue
            files.add(file)
            for name, level in _imported_names(ast.parse(_bytes_of(file), str(file))):
                start = folder
                if level:
                    start = file.parents[level - 1]
                found = _file_of(start, name)
                if not start.is_relative_to(folder) or found is None:
                    continue
                if not level:
                    names.add(name.partition(".")[0])
                waiting += [found, *_packages_above(found, folder)]
        return cls(frozenset(files), frozenset(names))


def _imported_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the modules that a source may import, each with the number of leading dots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, 0
        elif isinstance(node, ast.ImportFrom):
            if node.module:
                yield node.module, node.level
            for alias in node.names:  # `from . import blocks`, `from parts import blocks`
                yield ".".join(filter(None, (node.module, alias.name))), node.level


def _packages_above(file: Path, folder: Path) -> list[Path]:
    """Return the `__init__.py` that are executed before a file of a package."""
    found = []
    for parent in file.parents:
        if parent == folder:
            break
        if (parent / "__init__.py").is_file():
            found.append(parent / "__init__.py")
    return found


def _file_of(folder: Path, module: str) -> Path | None:
    """Return the file of a dotted module in a folder, or None."""
    base = folder.joinpath(*module.split("."))
    for file in (base / "__init__.py", base.with_name(base.name + ".py")):
        if file.is_file():
            return file
    return None


def _bytes_of(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}") from None


def _installed(name: str) -> str | None:
    """Return where a module of this name comes from without the user's folder, or None."""
    loaded = sys.modules.get(name)
    if loaded is not None and loaded is not _loaded.get(name):
        return str(getattr(loaded, "__file__", None) or "built in")
    if name in sys.builtin_module_names:
        return "built in"
    spec = PathFinder.find_spec(name)
    if spec is None:
        return None
    return str(spec.origin or "a folder of sys.path")


def _import(package: str, folder: Path, module: str, names: frozenset[str]) -> ModuleType:
    """Import a module of a folder as one of a package with a name of its own."""
    if _finder not in sys.meta_path:
        sys.meta_path.append(_finder)
    if package not in sys.modules:
        spec = ModuleSpec(package, None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
        sys.modules[package] = importlib.util.module_from_spec(spec)
        for name in names:  # loaded from another folder, or an earlier version
            if sys.modules.get(name, package) is _loaded.get(name):
                _forget(name)
    try:
        return importlib.import_module(f"{package}.{module}")
    finally:
        for name in names & sys.modules.keys():
            _loaded[name] = sys.modules[name]


def _forget(name: str) -> None:
    """Remove a module and those inside it, so that the next import loads it again."""
    for loaded in list(sys.modules):
        if loaded == name or loaded.startswith(f"{name}."):
            del sys.modules[loaded]
