"""The paper's appendix "Table Collapse": entropies H1 and H2 of CE, CCE, product quantisation and circular clustering.

The paper looked at tables trained on Criteo. Here the vectors that tables should learn are known: every id has the
vector of its group plus some noise of its own, and groups have sizes by Zipf's law. CE, CCE and circular clustering are
trained on them by gradient descent, the last two clustered in between; product quantisation is given the vectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from tqdm import tqdm

from cce.diagnostics import entropies
from cce.embeddings import ClusteredEmbedding, CompositionalConcatEmbedding, Embedding, ProductQuantizedEmbedding
from cce.theory.figure import Claim, Figure, Series

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Generator, Tensor

CE, CCE, PQ, CIRCULAR = "CE", "CCE", "PQ", "circular"
NEAR = 0.97  # of the largest entropy there can be
COLLAPSED = 0.95  # of what product quantisation has


@dataclass(frozen=True)
class Sizes:
    """Of the tables and of their training."""

    num_embeddings: int = 1_000
    embedding_dim: int = 16
    num_columns: int = 4
    num_rows: int = 64  # of each column
    num_groups: int = 40
    noise: float = 0.3
    num_clusterings: int = 24
    num_steps: int = 60  # of training before each clustering, and after the last
    learning_rate: float = 0.05


QUICK = Sizes(num_embeddings=300, num_rows=24, num_groups=16, num_clusterings=8, num_steps=30)


def table_collapse_figure(*, seed: int = 0, quick: bool = False, progress: bool = False) -> Figure:
    """H1 and H2 of each method after training, in nats."""
    sizes = QUICK if quick else Sizes()
    generator = torch.Generator().manual_seed(seed)
    vectors = grouped_vectors(sizes, generator)
    found: dict[str, tuple[float, ...]] = {}
    errors: dict[str, float] = {}
    for name in tqdm((CE, CCE, PQ, CIRCULAR), desc="table-collapse", leave=False, disable=None if progress else True):
        table = _trained(name, vectors, sizes, generator)
        found[name] = entropies(table, max_order=2)
        errors[name] = _error(table, vectors)
    places = tuple(range(len(found)))
    return Figure(
        name="table-collapse",
        title="Table collapse: entropies of pointers, in nats",
        x_label="method",
        y_label="entropy",
        series=(
            Series("H1", places, tuple(h1 for h1, _ in found.values())),
            Series("H2", places, tuple(h2 for _, h2 in found.values())),
            Series("error of vectors", places, tuple(errors.values()), is_reference=True),
        ),
        claims=_claims(found, sizes),
        settings={**vars(sizes), "seed": seed},
        ticks=tuple(found),
    )


def grouped_vectors(sizes: Sizes, generator: Generator) -> Tensor:
    """What the tables should learn, `(num_embeddings, embedding_dim)`."""
    shares = 1 / torch.arange(1, sizes.num_groups + 1)
    groups = torch.multinomial(shares, sizes.num_embeddings, replacement=True, generator=generator)
    centers = torch.randn(sizes.num_groups, sizes.embedding_dim, generator=generator)
    own = torch.randn(sizes.num_embeddings, sizes.embedding_dim, generator=generator)
    return centers[groups] + sizes.noise * own


def _trained(name: str, vectors: Tensor, sizes: Sizes, generator: Generator) -> Embedding:
    kinds: dict[str, Callable[..., Embedding]] = {
        CE: CompositionalConcatEmbedding,
        CCE: ClusteredEmbedding,
        PQ: ProductQuantizedEmbedding,
        CIRCULAR: lambda *ids, **options: ClusteredEmbedding(*ids, combine="circular", **options),
    }
    table = kinds[name](*vectors.shape, num_rows=sizes.num_rows, num_columns=sizes.num_columns, generator=generator)
    if isinstance(table, ProductQuantizedEmbedding):
        table.approximate(vectors, generator=generator)
        return table
    _train(table, vectors, sizes)
    for _ in range(sizes.num_clusterings):
        if isinstance(table, ClusteredEmbedding):
            table.cluster(generator=generator)
        _train(table, vectors, sizes)
    return table


def _train(table: Embedding, vectors: Tensor, sizes: Sizes) -> None:
    """Fit the codebook to the vectors of all ids; the optimizer starts anew, as pointers have changed."""
    ids = torch.arange(len(vectors))
    optimizer = torch.optim.Adam(table.parameters(), lr=sizes.learning_rate)
    for _ in range(sizes.num_steps):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(table(ids), vectors).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@torch.no_grad()
def _error(table: Embedding, vectors: Tensor) -> float:
    """What the table misses, relative to the size of the vectors."""
    return float((table.to_dense() - vectors).square().sum() / vectors.square().sum())


def _claims(found: dict[str, tuple[float, ...]], sizes: Sizes) -> tuple[Claim, ...]:
    most = math.log(sizes.num_rows), min(2 * math.log(sizes.num_rows), math.log(sizes.num_embeddings))
    (ce1, ce2), (cce1, cce2), (pq1, pq2), (_, circular2) = (found[name] for name in (CE, CCE, PQ, CIRCULAR))
    return (
        Claim(
            "the entropies of CE are near their largest",
            ce1 > NEAR * most[0] and ce2 > NEAR * most[1],
            f"H1 {ce1:.2f} of {most[0]:.2f}, H2 {ce2:.2f} of {most[1]:.2f}",
        ),
        Claim(
            "circular clustering collapses: its H2 falls below that of product quantisation",
            circular2 < COLLAPSED * pq2,
            f"{circular2:.2f} and {pq2:.2f}",
        ),
        Claim(
            "CCE does not collapse: its entropies lie between 0.95 of product quantisation's and CE's",
            COLLAPSED * pq1 <= cce1 <= ce1 and COLLAPSED * pq2 <= cce2 <= ce2,
            f"H1 {cce1:.2f} in [{pq1:.2f}, {ce1:.2f}], H2 {cce2:.2f} in [{pq2:.2f}, {ce2:.2f}]",
        ),
        Claim(
            "and its H2 is nearer to product quantisation's than to CE's",
            abs(cce2 - pq2) < abs(ce2 - cce2),
            f"{abs(cce2 - pq2):.2f} from the one, {abs(ce2 - cce2):.2f} from the other",
        ),
    )
