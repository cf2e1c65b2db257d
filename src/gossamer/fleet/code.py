"""The user's own code on devices: a copy in the folder of a fleet, or a study in a Python file."""

from __future__ import annotations

import shutil
from pathlib import Path

from gossamer._core.files import os_errors
from gossamer._core.own_code import OwnCode
from gossamer.errors import InputError
from gossamer.study import spec
from gossamer.study.study import Study

CODE = "code"  # the folder of the code; of a second folder of code "code2", and so on


def bundle_code(table: spec.Table, folder: Path) -> list[str]:
    """Copy the Python files that a study names into the folder of a fleet.

    Args:
        table: The tables of the study; their paths are changed to the copies.
        folder: The folder of the fleet.

    Returns:
        The names of the folders with the copies.

    Raises:
        DataError: If a file cannot be copied.
    """
    names: dict[str, str] = {}
    for _, part in spec.code_tables(table):
        source = part["path"]
        if source not in names:
            number = len(names) + 1
            names[source] = f"{CODE}{number}"
            if number == 1:
                names[source] = CODE
        for line in part["sources"]:
            file = line.partition(" ")[0]
            copy = folder / names[source] / file
            with os_errors("copy", copy):
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(Path(source) / file, copy)
        part["path"] = names[source]
    return list(names.values())


def study_in(text: str, field: str = "--study") -> Study:
    """Import a study from a Python file: the file is run.

    Args:
        text: "FILE.py:NAME", the name of a `Study` or of a function that returns one.
        field: Name of the field in an error.

    Raises:
        InputError: If there is no such study, or the code raises.
    """
    path, _, name = text.rpartition(":")
    file = Path(path)
    if not path.endswith(".py") or not name:
        raise InputError(field, text, "FILE.py:NAME of a study, such as my.py:study")
    if not file.is_file():
        raise InputError(field, text, f"a file that exists; there is no {file}")
    code = OwnCode(f"{file.stem}:{name}", file.resolve().parent)
    found = code.load()
    if callable(found):
        with code.refusing(field):
            found = found()
    if not isinstance(found, Study):
        accepted = f"a gs.Study, or a function that returns one; {name} is {type(found).__name__}"
        raise InputError(field, text, accepted)
    return found
