"""Types in the words of error messages and of the documentation."""

from __future__ import annotations

import dataclasses
import inspect
import os
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from numbers import Integral
from pathlib import Path
from typing import Any

from gossamer._core.parts import examples_of

_UNIONS = (typing.Union, types.UnionType)
_NOUNS = {int: "whole number", float: "number", Path: "path", datetime: "date"}
_PLAIN = (*_NOUNS, bool, str)
SEED_BITS = 1024
"""Bits of the largest seed. Seeds are hashed as text, and Python writes up to 4300 digits."""
LONGEST_NAME = 255
"""Bytes of the name of a file or folder that Linux and macOS accept."""
_PROTOCOL_BASES = (object, typing.Protocol, typing.Generic)


def describe_type(hint: Any) -> str:
    """Describe a type in the words of error messages and of the documentation.

    Args:
        hint: A type hint.

    Returns:
        A noun phrase.

    Example:
        >>> describe_type(float), describe_type(tuple[int, ...])
        ('a number', 'a list of whole numbers')
        >>> describe_type(typing.Literal["a", "b"])
        "'a' or 'b'"
    """
    origin = typing.get_origin(hint)
    parts = typing.get_args(hint)
    if hint is bool:
        return "true or false"
    if hint is str:
        return "text"
    if hint in _NOUNS:
        return f"a {_NOUNS[hint]}"
    if origin is dict:
        return "a table"
    if origin is typing.Literal:
        return " or ".join(map(repr, parts))
    if origin is tuple:
        count = ""
        if parts[-1] is not ...:
            count = f"{len(parts)} "
        return f"a list of {count}{_NOUNS.get(parts[0], 'value')}s"
    if origin in _UNIONS:
        described = [describe_type(part) for part in parts if part not in (str, type(None))]
        return " or ".join(dict.fromkeys(described))
    return "a table with a kind"


def describe_argument(hint: Any, value: Any, name: str) -> str:
    """Describe what Python code is to give for a type hint.

    Args:
        hint: The type hint.
        value: The value that is refused.
        name: The name of the argument.
    """
    origin = typing.get_origin(hint)
    parts = typing.get_args(hint)
    if isinstance(hint, dataclasses.InitVar):
        return describe_argument(hint.type, value, name)
    if hint is int and not isinstance(value, bool) and isinstance(value, Integral):
        return f"a whole number of at most {SEED_BITS if name == 'seed' else 64} bits"
    if hint is type(None):
        return "None"
    if hint is bool:
        return "True or False"
    if hint is Path and isinstance(value, str | os.PathLike):
        return f"a path whose names have at most {LONGEST_NAME} bytes, none of them a null byte"
    if origin in _UNIONS:
        described = []
        for part in parts:
            if part is not str or Path not in parts:  # a text is a path
                described.append(describe_argument(part, value, name))
        return " or ".join(dict.fromkeys(described))
    if origin is Callable:
        return "a function"
    if origin is tuple and parts[0] not in _NOUNS:
        return "a tuple whose items are each " + describe_argument(parts[0], value, name)
    if origin in (Sequence, list, Iterable):
        return (
            "a list"
            if not parts
            else "a list whose items are each " + describe_argument(parts[0], value, name)
        )
    if isinstance(hint, type) and hint not in _PLAIN and origin is None:
        return _describe_class(hint, name)
    return describe_type(hint)


def _describe_class(hint: type, name: str) -> str:
    """Describe a class of parts by examples; any other by its name."""
    classes = examples_of(name, lambda cls: fits(hint, cls))
    if not classes:
        return f"an object of the class {hint.__name__}"
    return f"an object such as {' or '.join(call_of(cls) for cls in classes)}"


def call_of(cls: type) -> str:
    """Return how an object of a class is made, with the arguments that it needs.

    Args:
        cls: A public class.
    """
    needed = []
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.default is inspect.Parameter.empty:
            needed.append(f"{name}=…")
    return f"gs.{cls.__name__}({', '.join(needed)})"


def fits(hint: type, cls: type) -> bool:
    """True if a class is a subclass of another one, or has the methods of a protocol.

    Args:
        hint: The class or protocol that a type hint asks for.
        cls: A class.
    """
    if not getattr(hint, "_is_protocol", False):
        return issubclass(cls, hint)
    names = {name for base in hint.__mro__ for name in vars(base) if base not in _PROTOCOL_BASES}
    return all(hasattr(cls, name) for name in names if not name.startswith("_"))
