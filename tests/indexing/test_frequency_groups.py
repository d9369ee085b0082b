import pytest
import torch

from cce.indexing import group_of, group_starts


def test_a_group_is_an_octave_of_ids_and_shared_rows_are_the_last():
    assert group_starts(10, 0) == [0, 1, 3, 7]
    assert group_starts(10, 256) == [0, 1, 3, 7, 10]
    assert group_of(torch.tensor([0, 1, 2, 3, 6, 7, 9, 10, 265]), group_starts(10, 256)).tolist() == [
        *(0, 1, 1, 2, 2, 3, 3, 4, 4)
    ]


@pytest.mark.parametrize(("num_learned", "num_shared"), [(0, 5), (1, 0), (1, 3), (2, 0), (3, 1), (1023, 0), (1024, 9)])
def test_no_group_is_empty_and_every_row_has_one(num_learned, num_shared):
    starts = group_starts(num_learned, num_shared)
    groups = group_of(torch.arange(num_learned + num_shared), starts)
    assert groups.unique().tolist() == list(range(len(starts)))
    assert [int((groups < g).sum()) for g in range(len(starts))] == starts
