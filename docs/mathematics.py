"""Typeset the formulas of the documentation: a subset of TeX as MathML, which browsers render.

A formula is a code block of the language `math`, as on GitHub. The site fetches no script and no
font for it. What is accepted is listed in the tables below; anything else raises a `ValueError`
that names the command.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape

_BLOCK = re.compile(r"^```math\n(.*?)^```$", re.M | re.S)
_TOKEN = re.compile(r"\\[a-zA-Z]+\*?|\\.|\d+(?:\.\d+)?|\s+|.", re.S)
_LETTERS = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "delta": "δ",
    "epsilon": "ε",
    "zeta": "ζ",
    "eta": "η",
    "theta": "θ",
    "kappa": "κ",
    "lambda": "λ",
    "mu": "μ",
    "nu": "ν",
    "rho": "ρ",
    "sigma": "σ",
    "tau": "τ",
    "phi": "φ",
    "varphi": "φ",
    "chi": "χ",
    "psi": "ψ",
    "omega": "ω",
    "Delta": "Δ",
    "Phi": "Φ",
    "Sigma": "Σ",
    "Omega": "Ω",
    "nabla": "∇",
    "infty": "∞",
    "ell": "ℓ",
}
_OPERATORS = {
    "cdot": "·",
    "leftarrow": "←",
    "to": "→",
    "le": "≤",
    "ge": "≥",
    "neq": "≠",
    "approx": "≈",
    "in": "∈",
    "dots": "…",
    "mid": "|",
    "lVert": "‖",
    "rVert": "‖",
    "lvert": "|",
    "rvert": "|",
    "langle": "⟨",
    "rangle": "⟩",
    "lfloor": "⌊",
    "rfloor": "⌋",
}
_LARGE = {"sum": "∑", "prod": "∏"}
_NAMES = ("max", "min")
_ACCENTS = {"bar": "¯", "hat": "ˆ"}  # spacing characters: a combining one would be doubled
_SPACES = {"quad": "1em", "qquad": "2em", ",": "0.17em", ";": "0.28em", " ": "0.25em"}
_FENCES = "()[]|‖⟨⟩⌊⌋"


def typeset(markdown: str) -> str:
    """Replace the formulas of a page by MathML.

    >>> typeset("```math\\nw^2\\n```").count("<msup>")
    1
    """
    return _BLOCK.sub(lambda found: f'<div class="math">{mathml(found[1])}</div>', markdown)


def mathml(tex: str) -> str:
    """Return a formula as a `<math>` element.

    >>> mathml("w_1")
    '<math display="block" alttext="w_1"><msub><mi>w</mi><mn>1</mn></msub></math>'
    """
    source = " ".join(tex.split())
    body = _Reader(source).until("")
    return f'<math display="block" alttext="{escape(source)}">{body}</math>'


class _Reader:
    """Read a formula from left to right."""

    def __init__(self, tex: str) -> None:
        self.tokens = [token for token in _TOKEN.findall(tex) if not token.isspace()]
        self.tex = tex
        # Text keeps its spaces, which are no tokens: it is taken from the source.
        self.texts = iter(re.findall(r"\\(?:text|operatorname)\{([^{}]*)\}", tex))
        self.at = 0

    def until(self, end: str) -> str:
        """Read to a token, or to the end of the formula if it is empty."""
        read: list[str] = []
        while self.peek() != end:
            if not self.peek():
                raise ValueError(f"{end!r} is missing in the formula {self.tex!r}")
            read.append(self.scripted())
        self.take()
        return "".join(read)

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def scripted(self) -> str:
        """Read an element with its subscript and superscript."""
        large = self.peek().removeprefix("\\") in _LARGE
        base = self.element()
        scripts: dict[str, str] = {}
        while self.peek() in ("^", "_", "'"):
            mark = self.take()
            if mark == "'":
                scripts["^"] = "<mo>′</mo>"
            elif mark in scripts:
                raise ValueError(f"two scripts in one place in the formula {self.tex!r}")
            else:
                scripts[mark] = self.element()
        below = scripts.get("_", "")
        above = scripts.get("^", "")
        if len(scripts) == 2:
            tag = "munderover" if large else "msubsup"
            return f"<{tag}>{base}{below}{above}</{tag}>"
        if "_" in scripts:
            tag = "munder" if large else "msub"
            return f"<{tag}>{base}{below}</{tag}>"
        if "^" in scripts:
            tag = "mover" if large else "msup"
            return f"<{tag}>{base}{above}</{tag}>"
        return base

    def element(self) -> str:
        token = self.take()
        if token == "{":
            return f"<mrow>{self.until('}')}</mrow>"
        if token.startswith("\\"):
            return self.command(token[1:])
        if token[:1].isdigit():
            return f"<mn>{token}</mn>"
        if token.isalpha():
            return f"<mi>{token}</mi>"
        if token in ("", "^", "_", "}", "&"):
            raise ValueError(f"{token!r} is out of place in the formula {self.tex!r}")
        return f"<mo{_attributes(token)}>{escape(token.replace('-', '−'))}</mo>"

    def command(self, name: str) -> str:
        if name in _LETTERS:
            return f"<mi>{_LETTERS[name]}</mi>"
        if name in _OPERATORS:
            return f"<mo{_attributes(_OPERATORS[name])}>{_OPERATORS[name]}</mo>"
        if name in _LARGE:
            return f"<mo>{_LARGE[name]}</mo>"
        if name in _NAMES:
            return f"<mi>{name}</mi>"
        if name in _SPACES:
            return f'<mspace width="{_SPACES[name]}"/>'
        if name in _ACCENTS:
            return f'<mover accent="true">{self.element()}<mo>{_ACCENTS[name]}</mo></mover>'
        other: dict[str, Callable[[], str]] = {
            "frac": lambda: f"<mfrac>{self.element()}{self.element()}</mfrac>",
            "sqrt": lambda: f"<msqrt>{self.element()}</msqrt>",
            "text": lambda: f"<mtext>{self.words()}</mtext>",
            "operatorname": lambda: f"<mi>{self.words()}</mi>",
            "left": self.fenced,
            "begin": self.aligned,
        }
        if name not in other:
            raise ValueError(f"\\{name} is not known in the formula {self.tex!r}")
        return other[name]()

    def words(self) -> str:
        """Read text in braces. Spaces at its ends are kept by those that do not break."""
        while self.take() != "}":
            pass
        words = next(self.texts)
        before = "\u00a0" * words.startswith(" ")
        after = "\u00a0" * words.endswith(" ")
        return f"{before}{escape(words.strip())}{after}"

    def fenced(self) -> str:
        opening = self.fence()
        inside = self.until("\\right")
        return f"<mrow><mo>{opening}</mo>{inside}<mo>{self.fence()}</mo></mrow>"

    def fence(self) -> str:
        token = self.take()
        return _OPERATORS.get(token.removeprefix("\\"), token)

    def aligned(self) -> str:
        """Read lines of an equation, with `&` between the columns."""
        if self.tokens[self.at : self.at + 9] != ["{", *"aligned", "}"]:
            raise ValueError(f"only \\begin{{aligned}} is known in the formula {self.tex!r}")
        self.at += 9
        rows = [[""]]
        while self.peek() != "\\end":
            if not self.peek():
                raise ValueError(f"\\end{{aligned}} is missing in the formula {self.tex!r}")
            if self.peek() == "\\\\":
                self.take()
                rows.append([""])
            elif self.peek() == "&":
                self.take()
                rows[-1].append("")
            else:
                rows[-1][-1] += self.scripted()
        self.at += 10
        lines = []
        for row in rows:
            cells = "".join(f"<mtd>{cell}</mtd>" for cell in row)
            lines.append(f"<mtr>{cells}</mtr>")
        return f'<mtable displaystyle="true">{"".join(lines)}</mtable>'


def _attributes(operator: str) -> str:
    """Return the attributes of an operator that keeps its size or has no space around it."""
    if operator in _FENCES:
        return ' stretchy="false" lspace="0" rspace="0"'
    if operator == "/":
        return ' lspace="0" rspace="0"'
    return ""
