"""Objects that know what they were made with."""

import copy
import pickle

import pytest

from cce.arguments import RemembersArguments, arguments_of


class Point(RemembersArguments):
    def __init__(self, x, y=2, *, generator=None, **others):
        self.x = x


class Many(RemembersArguments):
    def __init__(self, *values):
        pass


def test_arguments_are_known_by_name_in_copies_as_well():
    point = Point(1, generator=object(), z=3)
    for each in (point, copy.deepcopy(Point(1, z=3)), pickle.loads(pickle.dumps(Point(1, z=3)))):
        assert arguments_of(each) == {"x": 1, "z": 3}


def test_arguments_without_names_cannot_be_told():
    assert arguments_of(Many()) == {}
    with pytest.raises(TypeError, match=r"^Many must be made with named arguments to be saved, got \*values\.$"):
        arguments_of(Many(1, 2))
