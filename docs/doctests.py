"""Examples in docstrings, as the documentation shows them: `>>>` lines become blocks of code, not quotes of quotes."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

# A `>>>` line and all that follows it until an empty line: the code and what it prints.
_EXAMPLE = re.compile(r"^( *)>>> .*(?:\n.*\S.*)*", re.M)


def fenced(docstring: str) -> str:
    """The text with its examples fenced.

    >>> print(fenced(">>> 1 + 1\\n2"))
    ```pycon
    >>> 1 + 1
    2
    ```
    """

    def fence(found: re.Match[str]) -> str:
        lines = [
            re.sub(r"\s+# doctest: .*$", "", line.removeprefix(found[1]))
            for line in found[0].splitlines()
        ]
        return "\n".join(["", "```pycon", *lines, "```"]).removeprefix(
            "" if found.start() else "\n"
        )

    return _EXAMPLE.sub(fence, docstring)


class Doctests(Extension):
    """Fences the examples of every docstring that is collected."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
