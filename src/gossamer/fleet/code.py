"""Copy the user's own code into the folder of a fleet."""

from __future__ import annotations

import shutil
from pathlib import Path

from gossamer._core.files import os_errors
from gossamer.study import spec

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
