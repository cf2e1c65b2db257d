"""The base of parts that are the user's own code: import, check, call, and describe what fails."""

from __future__ import annotations

import inspect
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from gossamer._core import carried
from gossamer._core.own_code import OwnCode
from gossamer.errors import InputError

_FILES = "_files"  # contents of the module's files, in a part that was sent to another machine


@dataclass(frozen=True)
class Code:
    """An object of the user's own code, in a section of a spec.

    Creating it imports the module.

    Attributes:
        object: "module:name", such as "my_model:make".
        path: The folder of the module; relative to the spec's folder, or to the current one.
        arguments: Keyword arguments of the object, if it is a function or a class.
        sources: The files of the module, each with a digest, as they have to be; filled in if it
            is empty.

    Raises:
        InputError: If the object cannot be imported or made, or is not what the section needs.
    """

    object: str
    path: Path = Path()
    arguments: dict[str, Any] = field(default_factory=dict, hash=False)
    sources: tuple[str, ...] = ()

    _code: ClassVar[OwnCode]  # set on each object, like the two below, and not a field
    _value: ClassVar[Any]
    _made: ClassVar[Any]
    section: ClassVar[str]
    accepted: ClassVar[str]  # description of the accepted objects
    names_itself: ClassVar[bool] = True  # False where a study adds the section to errors
    given: ClassVar[tuple[str, ...]] = ()  # names of the arguments that functions receive
    stands_for_a_part: ClassVar[bool] = True  # accepted where a part of a study is

    def __post_init__(self) -> None:
        self._set("path", Path.cwd() / self.path)
        self._load()

    def _set(self, name: str, value: Any) -> None:
        """Set an attribute of a frozen dataclass."""
        object.__setattr__(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields: what was made belongs to this process.

        For another machine the files are added, if they are still those that were imported.
        """
        state = {f.name: getattr(self, f.name) for f in fields(self)}
        if carried.carries_files():
            with self._named():
                code = OwnCode(self.object, self.path)
                self._check_sources(code)
                state[_FILES] = code.contents()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            self._set(name, value)

    @property
    def made(self) -> Any:
        """The object that this part stands for."""
        if "_made" not in vars(self):  # a process that has received the part makes it again
            try:
                with self._named():
                    self._load()
            except InputError as error:
                accepted = f"{error.accepted}, on {platform.node()}"
                raise InputError(error.field, error.value, accepted) from None
        return vars(self)["_made"]

    def _load(self) -> None:
        folder = self.path
        if _FILES in vars(self):  # received from another process, whose folder may be elsewhere
            folder = carried.folder_of(vars(self)[_FILES])
        code = OwnCode(self.object, folder)
        if self.sources:
            self._check_sources(code)
        self._set("sources", code.sources)
        self._set("_code", code)
        self._set("_value", code.load())
        if is_maker(self._value):
            self._check_arguments()
        elif self.arguments:
            accepted = f"none: {self.object} is an object, not a function"
            raise InputError("arguments", self.arguments, accepted)
        self._set("_made", self._make())

    def _check_sources(self, code: OwnCode) -> None:
        """Refuse files that are not those that the spec was written with."""
        found = dict(source.split(" ", 1) for source in code.sources)
        for source in self.sources:
            name, _, digest = source.partition(" ")
            if found.get(name) != digest:
                accepted = (
                    f"the file that this was written for: {self.path / name} has changed "
                    f"(it is {found.get(name, 'not imported')} now)"
                )
                raise InputError("sources", source, accepted)

    def _make(self) -> Any:
        """Return the object that this part stands for, checked."""
        return self._value

    def _check_arguments(self) -> None:
        """Refuse arguments that the function or class does not take."""
        signature = _signature(self._value)
        if signature is None:
            return
        try:
            signature.bind(*self._positional(), **self._keywords(dict.fromkeys(self.given)))
        except TypeError as error:
            accepted = f"what {self.object}{signature} takes; {error}"
            raise InputError("arguments", self.arguments, accepted) from None

    def _positional(self) -> tuple[None, ...]:
        """Return as many values as the object is called with by position."""
        return ()

    def _keywords(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments, with those given values that the function has a parameter for."""
        signature = _signature(self._value)
        keywords = {}
        for name, value in given.items():
            if signature is not None and name in signature.parameters:
                keywords[name] = value
        return keywords | self.arguments

    def _called(self, **given: Any) -> Any:
        """Call the function or class, and return what it makes."""
        with self._code.refusing():
            return self._value(**self._keywords(given))

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the section in errors that no reader of a spec has seen."""
        try:
            yield
        except InputError as error:
            if self.names_itself and error.field in _FIELDS:
                raise error.under(self.section) from error.__cause__
            raise

    @contextmanager
    def _running(self) -> Iterator[Any]:
        """Import the code if this process has not, and turn what it raises into one sentence."""
        made = self.made
        with self._named(), self._code.refusing():
            yield made

    def guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of the user's code; what it raises becomes one sentence.

        Args:
            function: The function.
        """

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._named(), self._code.refusing():
                return function(*args, **kwargs)

        return call

    def _refused(self, made: Any) -> InputError:
        verb = "is"
        if made is not self._value:
            verb = "returns"
        accepted = f"{self.accepted}; it {verb} a {type(made).__name__}"
        return InputError("object", self.object, accepted)


_FIELDS = ("object", "arguments", "sources", "name", "better")


@dataclass(frozen=True)
class Forwarding(Code):
    """A part that has the attributes and methods of the object that it stands for.

    Attributes:
        seed: Passed to a function or class that has a parameter `seed`.
    """

    seed: int = 0

    kind: ClassVar[type]  # required class of the object
    given = ("seed",)

    def _make(self) -> Any:
        made = self._value
        if is_maker(made):
            made = self._called(seed=self.seed)
        if not isinstance(made, self.kind):
            raise self._refused(made)
        return made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(self.made, name)
        if inspect.ismethod(value):
            return self.guarded(value)
        return value


def _signature(function: Any) -> inspect.Signature | None:
    """Return the signature of a function or class; None if Python does not know it."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def is_maker(value: Any) -> bool:
    """True for a function or a class, which makes a part; False for a part."""
    return isinstance(value, type) or inspect.isroutine(value) or isinstance(value, partial)
