"""Colours: the usual methods keep theirs, and no two of a few series are alike."""

from cce.report.palette import GREY, HUES, palette


def test_methods_keep_their_colour_whoever_else_is_there():
    alone = palette(["cce"])
    many = palette(["hash", "full", "zzz", "cce", "aaa", "robe"])
    assert alone["cce"] == many["cce"]
    assert alone["cce"].colour == HUES[0]
    assert many["full"].colour == GREY


def test_up_to_eight_series_have_colours_of_their_own():
    names = ["cce", "hash", "other", "pq", "CCE half", "more", "most", "robe"]
    assert len({style.colour for style in palette(names).values()}) == 8


def test_beyond_eight_no_two_are_drawn_alike():
    styles = palette([f"series {place}" for place in range(13)] + ["full", "cce"])
    assert len(styles) == 15
    assert len({(style.colour, style.shape) for style in styles.values()}) == 15


def test_no_series():
    assert palette([]) == {}
