"""What `cce.data` offers: every name that it imports for type checkers, loaded when it is first used."""

import pytest

import cce.data


def test_every_public_name_is_there():
    assert len(dir(cce.data)) >= 30
    for name in dir(cce.data):
        assert getattr(cce.data, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'cce\.data' has no attribute 'colour'"):
        cce.data.colour  # noqa: B018
