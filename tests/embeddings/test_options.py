"""Rules for options: each accepts what it says, and names the argument, the rule and the value otherwise."""

import re

import pytest

import cce
from cce.checks import check_flag
from cce.embeddings import METHODS
from cce.embeddings.options import choice, optional, rules, whole, wholes, within


def test_what_keeps_the_rules_passes():
    whole(0, 3)("a", 0)
    choice("x", "y")("a", "y")
    within(0.5, 2)("a", 2)
    wholes()("a", [1, 2, 3])
    wholes(2)("a", (4, 5))
    optional(whole(1))("a", None)


@pytest.mark.parametrize(
    ("check", "value", "message"),
    [
        (whole(0, 3), 3, "a must lie in [0, 3), got 3."),
        (choice("x", "y"), "z", "a must be one of x, y; got 'z'."),
        (within(0.5, 2), 3, "a must lie in [0.5, 2], got 3."),
        (within(0.5, 2), 0.4, "a must lie in [0.5, 2], got 0.4."),
        (wholes(2), (1, 0), "a must lie in [1, 2**63), got 0."),
        (wholes(2), (1, 2, 3), "a must be a list of 2 ints, got (1, 2, 3)."),
        (wholes(), "12", "a must be a list of ints, got '12'."),
        (optional(whole(1)), 0, "a must lie in [1, 2**31), got 0."),
    ],
)
def test_what_breaks_a_rule_is_rejected_with_it(check, value, message):
    with pytest.raises((ValueError, TypeError, FileNotFoundError), match=re.escape(message)):
        check("a", value)


def test_every_rule_is_of_an_option_that_the_class_has_and_asks():
    seen = 0
    for method, kind in METHODS.items():
        for name in kind.option_checks:
            seen += 1
            with pytest.raises((ValueError, TypeError), match=f"^{name} must"):
                cce.create_embedding(method, 1000, 16, compression=2, **{name: object()})
    assert seen >= 30


def test_rules_are_kept_by_name():
    assert rules(sparse=check_flag) == {"sparse": check_flag}
