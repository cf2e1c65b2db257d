"""Arguments of public classes and functions: converted to their type hints, or refused.

A class or function with the decorator `checked` takes its numbers from Python, NumPy or torch
alike, a whole number also as 3.0, and a list where it wants a tuple. What is of another type raises
an `InputError` that says what is accepted; the checks of the class itself come first, since their
sentences say more.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import os
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Set
from collections.abc import Sequence as AnySequence
from datetime import date, datetime
from pathlib import Path
from typing import Any, TypeVar

from gossamer._core.parts import instance_of_kind
from gossamer._core.type_words import LONGEST_NAME, SEED_BITS, call_of, describe_argument, fits
from gossamer.errors import GossamerError, InputError

Checked = TypeVar("Checked", bound=Callable[..., Any])

_UNIONS = (typing.Union, types.UnionType)
# Values that a class refuses in its own words, which say more than the type; so are schedules and
# other functions.
_WORDED = (type(None), bool, int, float, str)
_FEW_ITEMS = 100  # items of a list that a class may check by itself
_LONGEST_PATH = 1023  # bytes of a path that Linux and macOS accept
_LARGEST = 2**63  # whole numbers are smaller: what TOML, Parquet and NumPy can hold
# Functions that make a part from what stands for it, such as a model from a torch module.
_CONVERSIONS: dict[type, Callable[[str, Any], Any]] = {}


class _Mismatch(Exception):
    """A value is not of its type."""


def conversion(hint: type) -> Callable[[Checked], Checked]:
    """Register a function that makes an object of a class from what stands for it.

    Args:
        hint: The class, as it stands in type hints.

    Returns:
        A decorator. The function gets the name of the argument and the value, which is no object of
        the class. It returns an object of the class, or the value as it is if it stands for none.
    """

    def add(function: Checked) -> Checked:
        _CONVERSIONS[hint] = function
        return function

    return add


def checked(target: Checked) -> Checked:
    """Convert the arguments of a dataclass or function to their type hints, or refuse them.

    Args:
        target: The dataclass or function.

    Returns:
        The class with another `__init__`, or another function with the same signature.

    Example:
        >>> import numpy as np
        >>> @checked
        ... @dataclasses.dataclass(frozen=True)
        ... class Part:
        ...     size: int
        >>> Part(np.int16(3)), Part(3.0)
        (Part(size=3), Part(size=3))
        >>> Part("3")
        Traceback (most recent call last):
        gossamer.errors.InputError: size = '3' is not accepted: give a whole number
    """
    if isinstance(target, type):
        if "__init__" in vars(target):  # a subclass without one uses that of its base
            target.__init__ = _checked_call(target.__init__, target)  # type: ignore[misc]
        return target
    return typing.cast(Checked, _checked_call(target, target))


def _checked_call(function: Callable[..., Any], owner: Any) -> Callable[..., Any]:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        bound = signature.bind(*arguments, **named)
        hints = _type_hints(owner)
        wrong: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            kind = signature.parameters[name].kind
            if name not in hints or kind is inspect.Parameter.VAR_KEYWORD:
                continue
            hint = hints[name]
            if kind is inspect.Parameter.VAR_POSITIONAL:
                hint = types.GenericAlias(tuple, (hint, ...))
            try:
                bound.arguments[name] = _converted(hint, value, name)
            except _Mismatch:
                wrong[name] = value
                is_path = Path in (hint, *typing.get_args(hint))
                if is_path or not _is_worded(value):
                    _refuse(wrong, hints)
        try:
            result = function(*bound.args, **bound.kwargs)
        except GossamerError:
            raise
        except Exception:
            _refuse(wrong, hints)
            raise
        _refuse(wrong, hints)
        return result

    return call


@functools.cache
def _type_hints(owner: Any) -> dict[str, Any]:
    """Return the type hints of a dataclass or function; Any for one that is not known here.

    A module may import a class for type checkers only.
    """
    parts = [owner]
    if isinstance(owner, type):
        parts = list(reversed(owner.__mro__))
        if not dataclasses.is_dataclass(owner):
            parts = [vars(owner)["__init__"].__wrapped__]
    hints = {}
    for part in parts:
        names = vars(sys.modules[part.__module__])
        for name, annotation in inspect.get_annotations(part).items():
            hints[name] = annotation
            if isinstance(annotation, str):
                try:
                    # The annotations are those of our own modules.
                    hints[name] = eval(annotation, names)
                except (NameError, AttributeError, TypeError):
                    hints[name] = Any
    return hints


def _is_worded(value: Any) -> bool:
    """True for values that the class itself may look at, to refuse them in its own words."""
    if isinstance(value, list | tuple):
        return len(value) <= _FEW_ITEMS and all(map(_is_worded, value))
    return isinstance(_plain(value), _WORDED) or callable(value)


def _refuse(wrong: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    """Raise an error for the first argument that is of another type."""
    for name, value in wrong.items():
        raise InputError(name, value, describe_argument(hints[name], value, name)) from None


# -- conversion -----------------------------------------------------------------------------------


def _converted(hint: Any, value: Any, name: str) -> Any:
    """Return a value as its type hint asks for it.

    Raises:
        _Mismatch: If it is of another type.
    """
    if isinstance(hint, dataclasses.InitVar):
        hint = hint.type
    if isinstance(hint, typing.TypeVar) or hint is Any or hint is object:
        return value
    if hint is None or hint is type(None):
        return _accept(value, value is None)
    if hint is int and name == "seed":
        return _whole(value, 2**SEED_BITS)
    if hint in _SCALARS:
        return _SCALARS[hint](value)
    origin = typing.get_origin(hint)
    if origin in _UNIONS:
        return _of_union(hint, value, name)
    if origin is typing.Literal:
        plain = _plain(value)
        return _accept(plain, isinstance(plain, str) and plain in typing.get_args(hint))
    if origin is tuple:
        return _tuple(hint, value, name)
    if origin is not None:
        return _of_generic(origin, typing.get_args(hint), value, name)
    if isinstance(hint, type):
        return _object(hint, value, name)
    return value


def _of_generic(origin: Any, parts: tuple[Any, ...], value: Any, name: str) -> Any:
    """Return a value of a generic type, such as a mapping or a function."""
    if getattr(value, "endless", False):
        raise _Mismatch
    if origin in (AnySequence, list, Iterable):
        is_text = isinstance(value, str | bytes)
        # A torch dataset has items and no iterator.
        accepted = hasattr(value, "__iter__") or hasattr(value, "__getitem__")
        if is_text or (origin is not Iterable and not hasattr(value, "__len__")):
            accepted = False
        if isinstance(value, Mapping) and origin is not Iterable:
            accepted = False  # its values would be lost
        _accept(value, accepted and _has_axis(value))
        if origin is AnySequence and parts and parts[0] is not Any:
            return [_converted(parts[0], item, name) for item in value]
        return value
    if origin is Callable:
        is_part = isinstance(value, type) and _is_own(value)
        return _accept(value, callable(value) and not is_part)
    if isinstance(origin, type):
        # A config of transformers or peft has to_dict; so has a data frame, which has a length.
        is_config = hasattr(value, "to_dict") and not hasattr(value, "__len__")
        return _accept(value, isinstance(value, origin) or (origin is dict and is_config))
    return value


def _of_union(hint: Any, value: Any, name: str) -> Any:
    parts = typing.get_args(hint)
    if value is None and type(None) in parts:
        return None
    if Path in parts and isinstance(value, str):
        return _path(value)
    for part in parts:  # first try without any conversion
        if isinstance(part, type) and typing.get_origin(part) is None and type(value) is part:
            if part is float or part is int:
                continue  # the range of numbers is checked below
            return value
    for part in parts:
        try:
            return _converted(part, value, name)
        except _Mismatch:
            continue
    raise _Mismatch


def _accept(value: Any, accepted: bool) -> Any:
    if not accepted:
        raise _Mismatch
    return value


def _has_axis(value: Any) -> bool:
    return getattr(value, "ndim", 1) > 0


def _is_scalar(value: Any) -> bool:
    return getattr(value, "ndim", 0) == 0


def _plain(value: Any) -> Any:
    """Return Python's own value for a scalar of NumPy or torch; any other value as it is."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    return value


def _whole(value: Any, limit: int = _LARGEST) -> int:
    plain = _plain(value)
    if isinstance(plain, float) and plain.is_integer():
        plain = int(plain)
    if isinstance(plain, bool) or not hasattr(plain, "__index__") or not _is_scalar(plain):
        raise _Mismatch
    return _accept_int(int(plain), limit)


def _accept_int(value: int, limit: int = _LARGEST) -> int:
    if not -limit <= value < limit:
        raise _Mismatch
    return value


def _number(value: Any) -> float:
    plain = _plain(value)
    if isinstance(plain, bool):
        raise _Mismatch
    if isinstance(plain, int):
        return _accept_int(plain)  # keep the type that was given: p=3 stays 3
    if not hasattr(plain, "__float__") or not _is_scalar(plain):
        raise _Mismatch
    try:
        number = float(plain)
    except (TypeError, ValueError, OverflowError):
        raise _Mismatch from None
    return typing.cast(float, _accept(number, not math.isnan(number)))


def number_of(value: Any) -> float:
    """Return Python's own number for one of Python, NumPy or torch.

    Args:
        value: A number; not a bool, and not NaN.

    Raises:
        TypeError: If it is none.

    Example:
        >>> import numpy as np
        >>> number_of(np.float32(0.5)), number_of(3)
        (0.5, 3.0)
    """
    try:
        return float(_number(value))
    except _Mismatch:
        raise TypeError(f"{type(value).__name__} is not a number") from None


def _flag(value: Any) -> bool:
    plain = _plain(value)
    return typing.cast(bool, _accept(plain, isinstance(plain, bool)))


def _text(value: Any) -> str:
    plain = _plain(value)
    if not isinstance(plain, str):
        raise _Mismatch
    return str(plain)


def _path(value: Any) -> Path:
    """Return a path. A text is kept as it is: a class may expand it itself."""
    if not isinstance(value, str | os.PathLike):
        raise _Mismatch
    try:
        encoded = os.fsencode(value)
    except UnicodeEncodeError:
        raise _Mismatch from None
    longest = max(map(len, encoded.split(b"/")))
    if b"\0" in encoded or longest > LONGEST_NAME or len(encoded) > _LONGEST_PATH:
        raise _Mismatch
    return typing.cast(Path, value)


def _date(value: Any) -> date:
    return typing.cast(date, _accept(value, isinstance(value, date)))


_SCALARS: dict[Any, Callable[[Any], Any]] = {
    int: _whole,
    float: _number,
    bool: _flag,
    str: _text,
    Path: _path,
    datetime: _date,
}


def _tuple(hint: Any, value: Any, name: str) -> tuple[Any, ...]:
    parts = typing.get_args(hint)
    is_other = isinstance(value, str | bytes | Mapping | Set)
    if is_other or not hasattr(value, "__iter__") or not hasattr(value, "__len__"):
        raise _Mismatch  # a network, for one, can be iterated without end
    if not _has_axis(value):
        raise _Mismatch
    items = list(value)
    if parts[-1] is ...:
        return tuple(_converted(parts[0], item, name) for item in items)
    if len(items) != len(parts):
        raise _Mismatch
    return tuple(_converted(part, item, name) for part, item in zip(parts, items, strict=True))


def _object(hint: type, value: Any, name: str) -> Any:
    """Return an object of a class; a class or the name of a kind stands for one without arguments.

    Raises:
        InputError: If it stands for an object that needs arguments.
    """
    if not isinstance(value, type) and _is_of(hint, value):
        return value
    if isinstance(value, type) and _is_own(hint) and fits(hint, value):
        return _made(value, name)
    if isinstance(value, str):
        kind = instance_of_kind(value, lambda cls: fits(hint, cls))
        if kind is not None:
            return _made(kind, name)
    if getattr(type(value), "stands_for_a_part", False):
        return value  # own code of a spec, which checks itself what it makes
    for known, convert in _CONVERSIONS.items():
        if known is hint:
            made = convert(name, value)
            return _accept(made, made is not value)
    raise _Mismatch


def _is_own(hint: type) -> bool:
    """True for classes of this package; a class of torch stands for a function that makes one."""
    return hint.__module__.partition(".")[0] == __name__.partition(".")[0]


def _made(cls: type, name: str) -> Any:
    try:
        return cls()
    except TypeError:
        raise InputError(name, cls, f"an object, as in {call_of(cls)}") from None


def _is_of(hint: type, value: Any) -> bool:
    if getattr(hint, "_is_protocol", False):
        return fits(hint, type(value))
    return isinstance(value, hint)
