"""The formulas of the pages: each is typeset, and a browser lays it out without a script."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.browser import chromium

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
mathematics = importlib.import_module("mathematics")
mathml, typeset = mathematics.mathml, mathematics.typeset

BLOCK = re.compile(r"^```math\n(.*?)^```$", re.M | re.S)
PAGES = {}
for folder in ("docs", "papers"):
    for path in sorted((ROOT / folder).rglob("*.md")):
        if found := BLOCK.findall(path.read_text()):
            PAGES[str(path.relative_to(ROOT))] = found


def tree(tex: str) -> ElementTree.Element:
    return ElementTree.fromstring(mathml(tex))


def shape(tex: str) -> str:
    """Return the elements of a formula in brackets."""

    def shown(element: ElementTree.Element) -> str:
        inside = "".join(shown(child) for child in element) or element.text or ""
        return f"{element.tag}({inside})"

    return "".join(shown(child) for child in tree(tex))


@pytest.mark.parametrize("name", PAGES)
def test_the_formulas_of_a_page_are_typeset(name: str) -> None:
    for tex in PAGES[name]:
        made = tree(tex)
        shown = "".join(made.itertext())
        assert not re.search(r"[\\{}^_&]", shown), shown
        assert not re.search(r"_\w|[{}]", " ".join(re.findall(r"\\text\{([^}]*)", tex))), tex


@pytest.mark.parametrize(
    ("tex", "wanted"),
    [
        ("x_i^+", "msubsup(mi(x)mi(i)mo(+))"),
        (r"\frac{1}{2} - y", "mfrac(mrow(mn(1))mrow(mn(2)))mo(−)mi(y)"),
        (r"\sum_j w_j", "munder(mo(∑)mi(j))msub(mi(w)mi(j))"),
        (r"\bar w'", "msup(mover(mi(w)mo(¯))mo(′))"),
        (r"\left( x \right)^2", "msup(mrow(mo(()mi(x)mo()))mn(2))"),
        (r"\sqrt{\eta}", "msqrt(mrow(mi(η)))"),
        (r"\operatorname{sgn}(x)", "mi(sgn)mo(()mi(x)mo())"),
        (
            r"\begin{aligned} a &= 1 \\ b &= 2 && \text{two words} \end{aligned}",
            "mtable(mtr(mtd(mi(a))mtd(mo(=)mn(1)))"
            "mtr(mtd(mi(b))mtd(mo(=)mn(2))mtd()mtd(mtext(two words))))",
        ),
    ],
)
def test_what_is_accepted(tex: str, wanted: str) -> None:
    assert shape(tex) == wanted


@pytest.mark.parametrize(
    ("tex", "said"),
    [
        (r"\unknown{x}", r"\unknown is not known in the formula"),
        ("x^", "'' is out of place in the formula"),
        ("{x", "'}' is missing in the formula"),
        ("x_i_j", "two scripts in one place in the formula"),
        (r"\begin{cases}", r"only \begin{aligned} is known in the formula"),
        (r"\begin{aligned} x", r"\end{aligned} is missing in the formula"),
    ],
)
def test_anything_else_is_named(tex: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        mathml(tex)


def test_only_blocks_of_mathematics_are_replaced() -> None:
    page = "text $x$\n\n```text\n\\frac\n```\n"
    assert typeset(page) == page


@pytest.mark.slow
def test_a_browser_lays_out_a_fraction_above_each_other() -> None:
    """Natively: the page has no script."""
    with chromium() as browser:
        page = browser.new_page()
        page.set_content(typeset("```math\n\\frac{a}{b} = c\n```\n"))
        boxes = []
        for element in page.locator("mi").all():
            boxes.append(element.bounding_box())
        above, below, beside = boxes
        assert above["y"] + above["height"] <= below["y"]
        assert beside["x"] > below["x"] + below["width"]
