"""Parse the HTML that objects show in a notebook."""

from __future__ import annotations

import xml.etree.ElementTree as ET

_HTML = {"div", "p", "strong", "table", "thead", "tbody", "tr", "th", "td", "br", "span"}
_SVG = {"svg", "g", "path", "circle", "polyline", "polygon", "text"}


def parse_html(html: str) -> ET.Element:
    """Parse HTML as XML, which fails on what is not escaped or not closed.

    There must be no script, no listener and no address in it.
    """
    root = ET.fromstring(html.replace("<br>", "<br/>"))
    for element in root.iter():
        assert element.tag in _HTML | _SVG
        for name in element.attrib:
            assert not name.startswith("on")
            assert "href" not in name
            assert name != "src"
    return root


def text_of(html: str) -> str:
    """Return the text of HTML, with single spaces."""
    return " ".join(" ".join(parse_html(html).itertext()).split())
