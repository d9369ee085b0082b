"""Tables that torch's own machinery trips over do not pass."""

import pickle

import pytest
import torch

from helpers import broken_tables as broken

BROKEN = [
    (broken.CopyIsItself, "test_deepcopy_shares_nothing"),
    (broken.Unpicklable, "test_pickle"),
    (broken.UnsavedState, "test_a_table_of_another_seed_takes_over_a_state"),
    (broken.FollowsThreads, "test_any_number_of_threads_gives_the_same"),
    (broken.UnsavedState, "test_a_table_made_on_the_meta_device_takes_over_a_state"),
    (broken.TensorThatStays, "test_runs_on_another_device"),
    (broken.ReadsValues, "test_vmap_and_functional_gradients"),
    (broken.InTheDefaultDevice, "test_the_constructor_takes_a_device_and_a_dtype"),
    (broken.UnsavedState, "test_reset_parameters_draws_what_the_constructor_does"),
    (broken.Buffered, "test_has_no_buffers_that_averaging_or_data_parallel_training_would_touch"),
    (broken.BufferedSeed, "test_an_averaged_copy_of_the_model_keeps_its_index_state"),
]
EXPORT = "test_torch_export_with_any_number_of_ids"
SLOW = [(broken.ReadsValues, "test_torch_compile"), (broken.ReadsValues, EXPORT), (broken.FixedLength, EXPORT)]
ERRORS = (AssertionError, RuntimeError, TypeError, AttributeError, pickle.PicklingError, pytest.fail.Exception)


def check(kind, test):
    getattr(broken.contract_of(broken.Sound), test)()
    with pytest.raises((*ERRORS, torch._dynamo.exc.TorchDynamoException)):
        getattr(broken.contract_of(kind), test)()


@pytest.mark.parametrize(("kind", "test"), BROKEN)
def test_a_broken_table_fails_where_it_is_broken(kind, test):
    check(kind, test)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "test"), SLOW)
def test_a_table_that_cannot_be_compiled_fails(kind, test):
    check(kind, test)
