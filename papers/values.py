"""Numbers in sentences, made from results or checked against them.

`python -m papers.blocks FILE…` fills them, and the tests fail if a page is out of date.

A number in a sentence stands between two comments:

    <!-- value results/fair.csv split=iid method=D-PSGD; ours ± ours_95; .0f -->31 ± 5<!-- / -->

The first comment names a file (relative to the page), the conditions of its rows, the column and
the format of the number in Python's notation. Without a format the number is as in the file. The
conditions must leave one row, unless a function stands before the column: `min`, `max`, `mean`,
`range` ("3 to 7", or "3" if both are), or `count` alone, the number of rows. A condition compares a
column with a value by `=`, `!=`, `<`, `>`, `<=` or `>=`; a backslash keeps a space in the value.

A sentence without a number has a comment behind it, which must be true:

    <!-- check results/fair.csv split=iid p>1; min ours > 31 -->
    <!-- check results/fair.csv split=noniid ours=; count = 2 -->

`loose_numbers` finds results in sentences that have neither.
"""

from __future__ import annotations

import csv
import operator
import re
from collections.abc import Callable
from pathlib import Path

Row = dict[str, str]

_VALUE = re.compile(
    r"(?P<head><!-- value (?P<path>[^\s;]+\.csv)(?P<where>[^;\n]*);(?P<what>[^\n]*?)-->)"
    r"[^\n]*?<!-- / -->"
)
_CHECK = re.compile(
    r"<!-- check (?P<path>[^\s;]+\.csv)(?P<where>[^;\n]*);"
    r"(?P<what>[^\n]*?) (?P<sign>!=|<=|>=|=|<|>) (?P<number>\S+) -->"
)
_CONDITION = re.compile(r"(?P<column>[^\s!<>=]+)(?P<sign>!=|<=|>=|=|<|>)(?P<value>\S*)")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}
# What is made or checked already, and what is no sentence.
_NOT_LOOSE = re.compile(
    r"<!-- (?:csv|include|field) .*?<!-- end -->|<!-- value .*?<!-- / -->|<!--.*?-->"
    r"|```.*?```|`[^`\n]*`|^    .*?$",
    re.DOTALL | re.MULTILINE,
)
# Words that make a number a result, not a setting.
_RESULT = re.compile(
    r"[^\n]{0,30}(?:\d ± \d"
    r"|\b(?:needs?|saves?|takes?|restores?) (?:about |at least )?\d"
    r"|\d %? ?(?:fewer|more|less|faster|slower|better|worse)\b"
    r"|\d (?:%|points) of\b|\d times\b|factor of \d)[^\n]{0,20}"
)
# Numbers that are no results: settings, targets, names and formulas.
_ONE = r"[−-]?\d+(?:,\d{3})*(?:\.\d+)?"
_LIST = rf"{_ONE}(?:(?:, and|,| and| or| to| …|/)\s?{_ONE})*(?![\d.]* ?%)"
_SETTING = re.compile(
    r"\]\([^)]*\)|arXiv:\S+|\b(?:19|20)\d\d\b|CIFAR-10|^\s*\d+\. "
    # Targets and intervals.
    r"|\b(?:[Tt]o|reach|reaches|before|for|of|target) \d[\d.]* %"
    r"|\b95 %(?:\s+confidence)?(?:\s+interval|$)"
    # Names of the paper's parts.
    rf"|\b(?:[Tt]ables?|[Ff]igures?|Lemma|Theorem|Algorithm|Assumption|Claim|Eq\.) {_LIST}"
    # A symbol and its values.
    rf"|(?:[^\W\d]|[₀'‖)])\S* ?(?:[=≤≥<>]|→) ?{_LIST}"
    # Part of a formula: beside an operator, or inside of brackets.
    r"|[+−·×/^(√Σ±]\s?\d[\d.,]*|\d[\d.,]*\s?(?:[+−·×/^)])\s?[\w(√]*|(?<=\w)[−-]\d+"
    # Settings: the word before or behind says what is set.
    rf"|\b(?:p|density|Dirichlet|floor|gain|seeds?|rounds?|batch|batches of|size|layer of|rate of"
    r"|most|every|within|from|beyond|near|device|steps?|starts? at|counts as|includes|excludes"
    rf"|exceeds|falls? to)\s{_LIST}"
    rf"|\b(?:on|of|with) {_LIST}(?=\s*(?:[.;,)|(]|$))"
    rf"|\b{_LIST}\s(?:\w+\s)?(?:devices?|seeds?|tasks?|labels?|links|dimensions|local steps?"
    r"|(?:test |training )?(?:samples|images))\b"
    r"|\b\d*00 rounds|\d+½?(?:\.\d+)? (?:hours|seconds|s|J|bytes)\b",
    re.MULTILINE,
)
_NUMBER = re.compile(r"[^\n]{0,40}(?<![\w.])\d[\d.,]*(?: %)?[^\n]{0,25}")
_FUNCTIONS = ("min", "max", "mean", "range", "count")


def with_values(text: str, folder: Path) -> str:
    """Return the text of a page with every number filled again.

    Args:
        text: The page.
        folder: The folder that the names of files are relative to.

    Raises:
        SystemExit: If conditions leave no row or too many, or a check is false.
    """
    checks = list(_CHECK.finditer(text))
    for block in checks:
        _check(block, folder)
    _all_understood(text, len(checks) + len(_VALUE.findall(text)))

    def fill(block: re.Match[str]) -> str:
        rows = selected(folder / block["path"], block["where"])
        expression, _, form = block["what"].partition(";")
        try:
            number = _number(rows, expression.strip(), form.strip())
        except ValueError as error:
            raise SystemExit(f"{block['head']}: {error}") from None
        return f"{block['head']}{number}<!-- / -->"

    return _VALUE.sub(fill, text)


def selected(path: Path, where: str) -> list[Row]:
    """Return the rows of a file for which all conditions hold.

    Args:
        path: The CSV file; lines that begin with # are comments.
        where: Conditions such as `split=noniid p>1 method=A\\ B`.

    Raises:
        SystemExit: If a condition names no column of the file.
    """
    conditions = list(_CONDITION.finditer(where.replace("\\ ", "\0")))
    with path.open(newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    for condition in conditions:
        if rows and condition["column"] not in rows[0]:
            raise SystemExit(f"{path} has no column {condition['column']}")
        rows = [row for row in rows if _holds(row, condition)]
    return rows


def loose_numbers(text: str) -> list[str]:
    """Return the results in the sentences of a page that are neither made nor checked.

    A number counts as a result by the words around it ("needs 31", "± 5", "24 % fewer", "3 times");
    other numbers, such as the settings of a run, are not looked at.

    Args:
        text: The page.

    Example:
        >>> loose_numbers("With 10 devices it needs 31 rounds.")
        ['With 10 devices it needs 31 rounds.']
        >>> loose_numbers("It needs <!-- value a.csv p=1; ours -->31<!-- / --> rounds at p = 1.")
        []
    """
    return _RESULT.findall(_NOT_LOOSE.sub("", text))


def bare_numbers(text: str) -> list[str]:
    """Return the numbers in the sentences of a page that are neither made, checked nor settings.

    Stricter than `loose_numbers`: a number needs a reason, such as a word that says what is set
    ("10 devices", "η = 0.01", "to 88 %", "at round 500"), or a place in a formula.

    Args:
        text: The page.

    Example:
        >>> bare_numbers("With 10 devices and η = 0.01, rounds to 88 %: p = 1 ends at 91 %.")
        ['p = 1 ends at 91 %.']
    """
    rest = _SETTING.sub(" ", re.sub(r"\$`.*?`\$|\$\$.*?\$\$", "", _NOT_LOOSE.sub("", text)))
    return [found.strip() for found in _NUMBER.findall(rest)]


def short(number: str) -> str:
    """Return 181.0 as 181."""
    if re.fullmatch(r"-?\d+\.0", number):
        return number[:-2]
    return number


def _all_understood(text: str, understood: int) -> None:
    """Raise SystemExit if a comment begins like a value or a check, but is not one."""
    begun = re.findall(r"<!-- (?:value|check) [^>]*", text)
    if len(begun) != understood:
        raise SystemExit(f"{understood} of these are understood:\n" + "\n".join(begun))


def _holds(row: Row, condition: re.Match[str]) -> bool:
    """Compare a cell with the value of a condition, as numbers unless it is = or !=."""
    cell = row[condition["column"]]
    value = condition["value"].replace("\0", " ")
    if condition["sign"] == "=":
        return cell == value
    if condition["sign"] == "!=":
        return cell != value
    return cell != "" and _COMPARE[condition["sign"]](float(cell), float(value))


def _number(rows: list[Row], expression: str, form: str) -> str:
    """Return the text of a number: a column, two as "mean ± half", or a function of a column."""
    function, _, column = expression.partition(" ")
    if function not in _FUNCTIONS:
        if len(rows) != 1:
            raise ValueError(f"{len(rows)} rows, where one is wanted")
        mean, _, half = (part.strip() for part in expression.partition("±"))
        text = _formatted(_cell(rows[0], mean), form)
        if not half:
            return text
        return f"{text} ± {_formatted(_cell(rows[0], half), form)}"
    if function == "range":
        values = _column(rows, column)
        low = _formatted(min(values), form)
        high = _formatted(max(values), form)
        return low if low == high else f"{low} to {high}"
    return _formatted(_aggregate(rows, function, column), form)


def _aggregate(rows: list[Row], function: str, column: str) -> float | str:
    """Return the number of rows, or the smallest, the largest or the mean value of a column."""
    if function == "count":
        return str(len(rows))
    values = _column(rows, column)
    if function == "mean":
        return sum(values) / len(values)
    if function == "min":
        return min(values)
    return max(values)


def _check(block: re.Match[str], folder: Path) -> None:
    """Raise SystemExit if a check is false."""
    rows = selected(folder / block["path"], block["where"])
    try:
        found = float(_number(rows, block["what"].strip(), ""))
    except ValueError as error:
        raise SystemExit(f"{block[0]}: {error}") from None
    if not _COMPARE[block["sign"]](found, float(block["number"])):
        raise SystemExit(f"{block[0]} is false: it is {found:g}")


def _cell(row: Row, column: str) -> str:
    """Return a cell; raise ValueError if there is none or it is empty."""
    if not row.get(column):
        raise ValueError(f"no value of {column!r}")
    return row[column]


def _column(rows: list[Row], column: str) -> list[float]:
    """Return a column as numbers; raise ValueError if there is none or a cell is empty."""
    if not rows:
        raise ValueError("no row")
    return [float(_cell(row, column)) for row in rows]


def _formatted(number: float | str, form: str) -> str:
    """Return a number in a format of Python; as it is in the file if there is none."""
    if form:
        return format(float(number), form)
    return short(str(number))
