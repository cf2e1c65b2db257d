"""Find the tables of a spec that name Python code; refuse them where code is not allowed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gossamer.study.spec.sections import OWN_CODE, SpecError, Table, item_path


def code_tables(value: Any, path: str = "") -> Iterator[tuple[str, Table]]:
    """Find the tables that name an object of Python code.

    Args:
        value: The tables of a spec, or any value in them.
        path: Its name in messages.

    Yields:
        The name of each such table, and the table.

    Example:
        >>> spec = {"model": {"kind": "python", "object": "my_model:make"}, "rounds": 9}
        >>> [name for name, table in code_tables(spec)]
        ['model']
    """
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from code_tables(item, item_path(path, value, index))
    if not isinstance(value, dict):
        return
    if value.get("kind") == OWN_CODE and "object" in value:
        yield path, value
    for key, item in value.items():
        name = key
        if path:
            name = f"{path}.{key}"
        yield from code_tables(item, name)


def refuse_code(table: Table) -> None:
    """Raise an error if a spec names Python code.

    Args:
        table: The tables of a spec.

    Raises:
        SpecError: If it does. The message names the object, the file and the option.
    """
    for name, part in code_tables(table):
        module = str(part["object"]).partition(":")[0].replace(".", "/")
        file = Path(str(part.get("path", "."))) / f"{module}.py"
        raise SpecError(
            f"{name}.object = {part['object']!r} is Python code in {file}, which is not run "
            "without permission: read it, then give --allow-code (in Python: allow_code=True)"
        )
