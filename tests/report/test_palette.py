"""Colours: the usual methods keep theirs, and no two of a few series are alike."""

import cce
from cce.report.palette import GREY, HUES, palette


def test_methods_keep_their_colour_whoever_else_is_there():
    alone = palette(["cce"])
    many = palette(["hash", "full", "zzz", "cce", "aaa", "robe"])
    assert alone["cce"] == many["cce"]
    assert alone["cce"].colour == HUES[0]
    assert many["full"].colour == GREY


def test_all_methods_and_one_more_series_have_colours_of_their_own():
    names = [*cce.list_methods(), "pq fine-tuned"]
    assert len(names) == 14
    assert len({style.colour for style in palette(names).values()}) == 14


def test_beyond_the_hues_no_two_are_drawn_alike():
    styles = palette([f"series {place}" for place in range(40)] + ["full", "cce"])
    assert len(styles) == 42
    assert len({(style.colour, style.shape) for style in styles.values()}) == 42


def test_no_series():
    assert palette([]) == {}
