import torch

from cce.embeddings import RowGradients


def test_gradients_are_kept_in_the_order_of_backward_until_they_are_taken():
    gradients = RowGradients()
    first, second = (torch.zeros(2, 3, requires_grad=True) for _ in range(2))
    gradients.watch(first, torch.tensor([4, 5]))
    gradients.watch(second, torch.tensor([5, -1]))
    (2 * first).sum().backward()
    (3 * second).sum().backward()
    assert gradients.nbytes == 2 * (2 * 8 + 6 * 4)
    rows, values = gradients.take()
    assert rows.tolist() == [4, 5, 5, -1]
    assert values.mean(1).tolist() == [2, 2, 3, 3]
    assert gradients.take() is None
    assert gradients.nbytes == 0


def test_what_was_not_taken_can_be_forgotten():
    gradients = RowGradients()
    vectors = torch.zeros(1, 3, requires_grad=True)
    gradients.watch(vectors, torch.tensor([0]))
    vectors.sum().backward()
    gradients.clear()
    assert gradients.take() is None
