"""A griffe extension that turns the `>>>` examples of docstrings into fenced code blocks."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

# A `>>>` line and everything up to the next empty line: the code and its output.
_EXAMPLE = re.compile(r"^( *)>>> .*(?:\n.*\S.*)*", re.M)


def fenced(docstring: str) -> str:
    """Return the docstring with its examples in fenced code blocks.

    >>> fenced(">>> 1 + 1\\n2")
    '```pycon\\n>>> 1 + 1\\n2\\n```'
    """

    def fence(found: re.Match[str]) -> str:
        indent = found[1]
        lines = [f"{indent}```pycon"]
        for line in found[0].splitlines():
            lines.append(re.sub(r"\s+# doctest: .*$", "", line))
        lines.append(f"{indent}```")
        if found.start():
            lines.insert(0, "")
        return "\n".join(lines)

    return _EXAMPLE.sub(fence, docstring)


class Doctests(Extension):
    """Fence the examples of every docstring."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
