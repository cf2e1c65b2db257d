"""Check plain values against the type hints of dataclass fields; describe types in words."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable
from datetime import date, datetime
from functools import cache
from typing import Any

import pydantic

from gossamer._core.type_words import describe_type
from gossamer.errors import InputError

_UNIONS = (typing.Union, types.UnionType)


def checked_value(cls: type, field: str, value: Any, path: str) -> Any:
    """Return a plain value, converted to its field's type as strictly as TOML's own types.

    Args:
        cls: The dataclass that the value is for.
        field: The name of the field.
        value: The value as TOML has it.
        path: The value's name in messages.

    Returns:
        The value; a list becomes a tuple where the field asks for one, and a date stays one.

    Raises:
        InputError: If the value is of another type.
    """
    if isinstance(value, date) and datetime in typing.get_args(type_hints(cls)[field]):
        return value
    try:
        text = json.dumps(value)
        if r"\u0000" in text:  # no file name may contain it
            raise ValueError
        return _adapter(cls, field).validate_json(text, strict=True)
    except (ValueError, TypeError):  # pydantic's errors, and values that JSON lacks, such as dates
        raise InputError(path, value, describe_type(type_hints(cls)[field])) from None


@cache
def type_hints(cls: type) -> dict[str, Any]:
    """Return the resolved type hints of a dataclass by field."""
    return typing.get_type_hints(cls)


@cache
def _adapter(cls: type, field: str) -> pydantic.TypeAdapter[Any]:
    hint = type_hints(cls)[field]
    if typing.get_origin(hint) in _UNIONS:
        # The other members are written as tables with a kind, or are callables: never plain.
        plain = [part for part in typing.get_args(hint) if _is_plain(part)]
        hint = typing.Union[tuple(plain)]  # noqa: UP007
    return pydantic.TypeAdapter(hint)


def _is_plain(hint: Any) -> bool:
    return typing.get_origin(hint) is not Callable and not dataclasses.is_dataclass(hint)
