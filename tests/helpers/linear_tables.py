"""Linear tables of every method and option, and the plain definition that their lookups are held to."""

import torch

import cce
from cce.kernels import gather_sum
from cce.kernels.cpu import lookup
from cce_lab.variants import FirstRowsEmbedding, HelpersEmbedding, SummedEmbedding
from helpers.draws import seeded
from helpers.final_form import finalize_table

NUM_IDS, DIM = 700, 16


def with_importance(table):
    with torch.no_grad():
        table.importance.copy_(torch.randn(table.importance.shape, generator=seeded(1)))
    return table


def clustered(num_ids=NUM_IDS, dim=DIM, **options):
    """Trained a little, so that pointers are learned and helpers are not zero."""
    table = cce_table(**options)(num_ids, dim)
    table.cluster(generator=seeded())
    with torch.no_grad():
        table.codebook.add_(0.1 * torch.randn(table.codebook.shape, generator=seeded(1)))
    return table


def finalized(num_ids=NUM_IDS, dim=DIM, *, num_rows=20, **options):
    """Pointers of the ids that have rows: two in five."""
    counts = torch.arange(num_ids) * 3 % 5
    table = cce.embeddings.CCEEmbedding(
        num_ids, dim, num_rows=num_rows, counts=counts - 1, generator=seeded(), **options
    )
    finalize_table(table, generator=seeded())
    return table


def cce_table(kind=cce.embeddings.ClusteredEmbedding, **options):
    return lambda n=NUM_IDS, d=DIM, **more: kind(n, d, **{"num_rows": 20, "generator": seeded(), **options, **more})


def table(kind, **options):
    return lambda n=NUM_IDS, d=DIM, **more: kind(n, d, generator=seeded(), **options, **more)


TABLES = {
    "full": table(cce.embeddings.FullEmbedding),
    "hash": table(cce.embeddings.HashingTrickEmbedding, num_rows=90),
    "hash with signs": table(cce.embeddings.HashingTrickEmbedding, num_rows=90, signed=True),
    "hash-embedding": table(cce.embeddings.HashEmbedding, num_rows=90),
    "hash-embedding of 3": table(cce.embeddings.HashEmbedding, num_rows=90, num_hashes=3),
    "hash-embedding with weights": lambda n=NUM_IDS, d=DIM, **more: with_importance(
        cce.embeddings.HashEmbedding(n, d, num_rows=90, weighted=True, num_weights=50, generator=seeded(), **more)
    ),
    "ce-concat": table(cce.embeddings.CompositionalConcatEmbedding, num_rows=30),
    "ce-concat of digits": table(cce.embeddings.CompositionalConcatEmbedding, num_rows=30, split="quotient-remainder"),
    "ce-sum": table(cce.embeddings.CompositionalSumEmbedding, num_rows=30),
    "ce-sum of digits": table(cce.embeddings.CompositionalSumEmbedding, num_rows=30, split="quotient-remainder"),
    "robe": table(cce.embeddings.RobeEmbedding, size=300),
    "robe of odd blocks": table(cce.embeddings.RobeEmbedding, size=301, block_size=5),
    "robe of long blocks": table(cce.embeddings.RobeEmbedding, size=97, block_size=150),
    "pq": table(cce.embeddings.ProductQuantizedEmbedding, num_rows=20),
    "pq of residuals": table(cce.embeddings.ProductQuantizedEmbedding, num_rows=20, residual=True),
    "pq of two bytes": table(cce.embeddings.ProductQuantizedEmbedding, num_rows=300),
    "pq of four bytes": table(cce.embeddings.ProductQuantizedEmbedding, num_rows=2**16 + 1),
    "pq of a bit": table(cce.embeddings.ProductQuantizedEmbedding, num_rows=2, num_columns=1),
    "cce": cce_table(),
    "cce of eight columns": cce_table(num_columns=8),
    "cce of eight columns, four bits": cce_table(num_columns=8, num_rows=13),
    "cce of eight columns, two bytes": cce_table(num_columns=8, num_rows=300),
    "cce after clustering": clustered,
    "cce of int8 rows, final": finalized,
    "cce of int8 rows, final, eight columns": lambda n=NUM_IDS, d=DIM, **more: finalized(n, d, num_columns=8, **more),
    "cce of int8 rows, final, unseen trained": lambda n=NUM_IDS, d=DIM, **more: finalized(
        n, d, unseen="trained", **more
    ),
    "cce with two helpers": cce_table(HelpersEmbedding),
    "cce of sums": cce_table(SummedEmbedding),
    "cce of four bits": cce_table(num_rows=13, num_columns=4),
    "cce of two bits": cce_table(num_rows=4, num_columns=2),
    "cce of two bytes": cce_table(num_rows=300),
    "cce of four bytes": cce_table(num_rows=2**16 + 1),
    "cce with first rows": cce_table(FirstRowsEmbedding, first_factor=15),
}


def plain(table, ids, codebook=None):
    """The definition; padding is zero."""
    codebook = table.codebook if codebook is None else codebook
    vectors = gather_sum(codebook, *table.lookup(ids.reshape(-1))).view(*ids.shape, table.embedding_dim)
    if table.padding_idx is None:
        return vectors
    return vectors.masked_fill((ids == table.padding_idx).unsqueeze(-1), 0)


def look_up(plan, ids, codebooks, **options):
    """The compiled lookup of a launch plan."""
    return lookup.look_up(plan.bind(codebooks), ids, codebooks, **options)


def run_forward(launch, ids, bags):
    """The vectors, and what is saved for backward."""
    batch = len(ids) if bags is None else bags.batch
    return lookup.forward(launch, ids, bags, (batch, launch.plan.dim), save=True)


def assert_same_sums(found, expected, table):
    """To the bit, up to four terms: torch sums more of them in an order of its own."""
    exact = table.layout().terms <= 4
    torch.testing.assert_close(found, expected, rtol=0 if exact else 1e-6, atol=0 if exact else 1e-7)


def some_ids(*shape, high=NUM_IDS, seed=7):
    return torch.randint(0, high, shape, generator=seeded(seed))
