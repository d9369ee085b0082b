"""Two budgets compared seed by seed, in words."""

import pytest

from cce_lab.report.groups import group_records
from cce_lab.report.significance import Comparison, compare, comparisons, meaning
from helpers.made_records import made_record


def made_group(**scores):
    """Full tables and cce (cap 500), by their BCE of seeds 0, 1, …"""
    caps = {"full": None, "cce": 500, "hash": 500}
    records = [made_record(name, caps[name], seed, bce=bce) for name in scores for seed, bce in enumerate(scores[name])]
    (group,) = group_records(records)
    return group


def test_three_seeds_by_hand():
    group = made_group(full=(0.4500, 0.4510, 0.4490), cce=(0.4480, 0.4486, 0.4471))
    (found,) = comparisons(group)
    assert found.gains == pytest.approx((0.0020, 0.0024, 0.0019))
    deviation = 0.00026458  # of 20, 24 and 19
    assert found.interval == pytest.approx(
        (0.0021 - 4.3027 * deviation / 3**0.5, 0.0021 + 4.3027 * deviation / 3**0.5), rel=1e-4
    )
    assert str(found) == (
        "cce (cap 500) is better than full in 3 of 3 seeds, mean difference 0.0021 ± 0.0003; "
        "95 % interval of the mean 0.0014 to 0.0028."
    )
    assert meaning([found]).endswith("3 seeds are few: without a true difference all agree once in 4 tries.")


def test_what_may_be_chance_is_called_so_and_worse_is_said():
    group = made_group(full=(0.45, 0.45, 0.45), cce=(0.452, 0.449, 0.453))
    (found,) = comparisons(group)
    assert str(found) == (
        "cce (cap 500) is worse than full in 2 of 3 seeds, mean difference 0.0013 ± 0.0021; "
        "the 95 % interval of the mean includes zero, so it may be chance."
    )


def test_seeds_are_paired_not_pooled():
    """Scores scatter far more than differences: unpaired, nothing would be clear."""
    group = made_group(full=(0.40, 0.45, 0.50), cce=(0.399, 0.449, 0.499))
    (found,) = comparisons(group)
    assert found.is_clear
    assert found.num_better == 3


def test_a_seed_that_one_of_them_lacks_is_left_out_and_one_seed_says_so():
    group = made_group(full=(0.45,), cce=(0.44, 0.43))
    found = compare(group, group.series["cce"][0], group.baseline)
    assert found.gains == pytest.approx((0.01,))
    assert "in 1 of 1 seed, difference 0.0100; one seed says nothing of chance." in str(found)


def test_more_is_better_where_the_metric_says_so():
    records = [made_record("full", None, seed, scores={"auc": 0.70}) for seed in range(2)]
    records += [made_record("cce", 500, seed, scores={"auc": 0.72}) for seed in range(2)]
    for record in records:
        record.config["best_by"] = "auc"
    (group,) = group_records(records)
    assert "is better than full in 2 of 2 seeds, mean difference 0.0200 ± 0.0000" in str(comparisons(group)[0])


def test_rivals_of_one_budget_are_compared_and_single_seeds_are_not():
    group = made_group(full=(0.45, 0.45), cce=(0.44, 0.441), hash=(0.46, 0.462))
    pairs = [(each.first, each.second) for each in comparisons(group)]
    assert pairs == [("cce (cap 500)", "full"), ("hash (cap 500)", "full"), ("cce (cap 500)", "hash (cap 500)")]
    assert comparisons(made_group(full=(0.45,), cce=(0.44,))) == []
    assert meaning([]) == ""


def test_many_seeds_need_no_warning():
    assert "few" not in meaning([Comparison("a", "b", (0.1,) * 6)])
    assert "few" in meaning([Comparison("a", "b", (0.1,) * 5)])
