"""What `cce.data` offers: every name that it lists, loaded when it is first used."""

import ast
import inspect

import pytest

import cce.data


def test_every_public_name_is_there_and_type_checkers_see_the_same():
    tree = ast.parse(inspect.getsource(cce.data))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported - {"annotations", "lazy_names", "TYPE_CHECKING"} == set(cce.data.__all__)
    assert len(cce.data.__all__) >= 30
    for name in cce.data.__all__:
        assert getattr(cce.data, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'cce\.data' has no attribute 'colour'"):
        cce.data.colour  # noqa: B018
