"""The palette: methods differ in colour, dash and marker."""

from __future__ import annotations

from gossamer.results import palette


def test_the_first_49_methods_have_different_lines() -> None:
    assert len({palette.line_style(k) for k in range(49)}) == 49


def test_every_colour_has_a_dash_and_a_marker() -> None:
    for values in (palette.COLOURS, palette.DASHES, palette.MARKERS):
        assert len(set(values)) == 7
    for values in (palette.LIGHT_PAGE, palette.DARK_PAGE, palette.NOTEBOOK):
        assert len(set(values)) == 7


def test_a_notebook_has_the_colours_of_the_figures() -> None:
    assert palette.NOTEBOOK[:6] == palette.COLOURS[:6]
    assert palette.NOTEBOOK[6] == "currentColor"
    assert palette.COLOURS[6] == "#000000"
