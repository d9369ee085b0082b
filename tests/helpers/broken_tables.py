"""Tables that break one rule each, and their contracts, which must fail."""

from dataclasses import replace
from functools import wraps

import torch
from own_method import FactorizedEmbedding as Sound

from cce.testing import EmbeddingContract


def contract_of(broken: type[Sound]) -> EmbeddingContract:
    """The contract that the sound table passes, of another one."""

    class Contract(EmbeddingContract):
        table_class = broken
        fills_budget = False
        has_matrix_products = True

        def reference(self, table, x):
            return table.narrow[x] @ table.projection

    return Contract()


def made_with(change):
    """A constructor that changes the table at its end."""

    @wraps(Sound.__init__)
    def __init__(self, *args, **options):
        Sound.__init__(self, *args, **options)
        change(self, **options)

    return __init__


# -- values ------------------------------------------------------------------------------------------------------------


class WrongFormula(Sound):
    def embed(self, ids):
        return super().embed(ids) * 1.001


class WrongDense(Sound):
    def to_dense(self, ids=None):
        return super().to_dense(ids).roll(1, 0)


class WrongGradient(Sound):
    def embed(self, ids):
        vectors = super().embed(ids)
        return 2 * vectors.detach() - vectors  # the right values


class WrongSparseGradient(Sound):
    def embed(self, ids):
        vectors = super().embed(ids)
        return 2 * vectors - vectors.detach() if self.sparse else vectors


class PaddingIsLookedUp(Sound):
    def forward(self, input):  # noqa: A002
        return self.embed(input.reshape(-1)).view(*input.shape, -1)


class AlwaysFloat32(Sound):
    def embed(self, ids):
        return super().embed(ids).float()


class FlatIdsOnly(Sound):
    def forward(self, input):  # noqa: A002
        return super().forward(input.reshape(-1))


class OwnRandomness(Sound):
    __init__ = made_with(lambda self, **_: torch.nn.init.normal_(self.narrow))


class WideStart(Sound):
    __init__ = made_with(lambda self, **_: self.narrow.data.mul_(1.1))


class UncheckedIds(Sound):
    def forward(self, input):  # noqa: A002
        return super().forward(input % self.num_embeddings)


# -- modules -----------------------------------------------------------------------------------------------------------


class CopyIsItself(Sound):
    def __deepcopy__(self, memo):
        return self


class Unpicklable(Sound):
    __init__ = made_with(lambda self, **_: setattr(self, "hook", lambda: None))


class UnsavedState(Sound):
    __init__ = made_with(
        lambda self, generator=None, **_: setattr(self, "shift", torch.rand((), generator=generator, device="cpu"))
    )

    def embed(self, ids):
        return super().embed(ids) + self.shift


class TensorThatStays(Sound):
    __init__ = made_with(lambda self, **_: setattr(self, "zeros", torch.zeros(self.embedding_dim, device="cpu")))

    def embed(self, ids):
        return super().embed(ids) + self.zeros


class ReadsValues(Sound):
    def embed(self, ids):
        return super().embed(ids) * (1 if int(ids.sum()) >= 0 else 2)


class FixedLength(Sound):
    def embed(self, ids):
        return super().embed(ids).view(len(ids), -1)


class InTheDefaultDevice(Sound):
    __init__ = made_with(lambda self, **_: setattr(self, "narrow", torch.nn.Parameter(torch.rand(self.narrow.shape))))


class Buffered(Sound):
    __init__ = made_with(lambda self, **_: self.register_buffer("steps", torch.ones((), device="cpu")))


class BufferedSeed(Sound):
    __init__ = made_with(lambda self, **_: self.register_buffer("seed", torch.tensor(2**62 + 1, device="cpu")))


# -- threads and processes ---------------------------------------------------------------------------------------------


class FollowsThreads(Sound):
    def embed(self, ids):
        return super().embed(ids) + torch.get_num_threads()


# -- sizes -------------------------------------------------------------------------------------------------------------


class WrongBytes(Sound):
    @property
    def pointer_nbytes(self):
        return 8 * (self.num_embeddings + self.embedding_dim)


class WrongFootprint(Sound):
    @classmethod
    def footprint(cls, *args, **options):
        found = super().footprint(*args, **options)
        return replace(found, codebook_nbytes=found.codebook_nbytes // 2)


class WrongShapes(Sound):
    @classmethod
    def shapes(cls, num_embeddings, embedding_dim, arguments):
        return replace(super().shapes(num_embeddings, embedding_dim, arguments), num_hashes=1)


class OverBudget(Sound):
    @classmethod
    def size_for_budget(cls, *args):
        return {"rank": super().size_for_budget(*args)["rank"] + 1}


class AnyBudget(Sound):
    @classmethod
    def size_for_budget(cls, num_embeddings, embedding_dim, num_params, options):
        return {"rank": max(1, num_params // (num_embeddings + embedding_dim))}


class WrongFit(Sound):
    def fit_to(self, weight, *, generator=None):
        super().fit_to(-weight)
