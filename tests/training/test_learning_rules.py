import pytest

from cce.training import TrainConfig


def _rejected(**options):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole message is compared
        TrainConfig(data="", cap=100, **options)
    return str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"cluster_every": 10, "cluster_at_epochs": [1.0]},
            "give one of cluster_every, cluster_at_epochs and cluster_schedule, "
            "got cluster_every and cluster_at_epochs.",
        ),
        (
            {"cluster_every": 10, "cluster_schedule": "one-epoch"},
            "give one of cluster_every, cluster_at_epochs and cluster_schedule, "
            "got cluster_every and cluster_schedule='one-epoch'.",
        ),
        (
            {"cluster_at_epochs": [1.0], "cluster_times": 2},
            "cluster_times does not go with cluster_at_epochs, which lists all clusterings.",
        ),
        ({"cluster_at_epochs": []}, "cluster_at_epochs must be a list of numbers above 0, got []."),
        ({"cluster_at_epochs": [0.5, -1]}, "cluster_at_epochs must be a list of numbers above 0, got [0.5, -1]."),
    ],
)
def test_what_contradicts_itself_is_rejected_by_name(options, message):
    assert _rejected(**options) == message


def test_each_way_alone_will_do():
    for options in ({"cluster_every": 10}, {"cluster_at_epochs": [0.5, 1]}, {"cluster_schedule": "none"}, {}):
        TrainConfig(data="", cap=100, **options)
