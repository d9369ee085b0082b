"""The paper's appendix "Table Collapse": entropies H1 and H2 of CE, CCE, product quantisation and circular clustering.

The paper looked at tables trained on Criteo. Here the vectors that tables should learn are known: every id has the
vector of its group plus independent noise, and groups have sizes by Zipf's law. CE, CCE and circular clustering are
trained on them by gradient descent, the last two clustered in between; product quantisation is given the vectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from cce.clustering import column_entropies
from cce.embeddings import ClusteredEmbedding, CompositionalConcatEmbedding, Embedding, ProductQuantizedEmbedding
from cce_lab.theory.figure import Claim, Figure, steps
from cce_lab.variants import CircularEmbedding

CE, CCE, PQ, CIRCULAR = "CE", "CCE", "PQ", "circular"
KINDS = {
    CE: CompositionalConcatEmbedding,
    CCE: ClusteredEmbedding,
    PQ: ProductQuantizedEmbedding,
    CIRCULAR: CircularEmbedding,
}
NEAR = 0.97  # of the largest entropy there can be
CLOSE = 0.05  # of what product quantisation has
PAPER_CLUSTERINGS = 6  # the most in the paper's experiments

Entropies = list[tuple[float, ...]]  # H1 and H2, after 0, 1, 2, … clusterings


@dataclass(frozen=True)
class Sizes:
    """Sizes of the tables and of their training."""

    num_embeddings: int = 1_000
    embedding_dim: int = 16
    num_columns: int = 4
    num_rows: int = 64  # of each column
    num_groups: int = 40
    noise: float = 0.3
    num_clusterings: int = 96
    num_steps: int = 60  # of training before each clustering, and after the last
    learning_rate: float = 0.05


QUICK = Sizes(num_embeddings=300, num_rows=24, num_groups=16, num_clusterings=12, num_steps=30)


def table_collapse_figure(*, seed: int = 0, quick: bool = False) -> Figure:
    """H1 and H2 of each method in nats, after each clustering; the pointers of CE and PQ stay as they are."""
    sizes = QUICK if quick else Sizes()
    generator = torch.Generator().manual_seed(seed)
    vectors = grouped_vectors(sizes, generator)
    tables: dict[str, Embedding] = {
        name: kind(
            *(sizes.num_embeddings, sizes.embedding_dim),
            num_rows=sizes.num_rows,
            num_columns=sizes.num_columns,
            start_scale="uniform",
            generator=generator,
        )
        for name, kind in KINDS.items()
    }
    found = {name: _follow(table, vectors, sizes, generator) for name, table in tables.items()}
    with torch.no_grad():  # what each table misses, relative to the size of the vectors
        errors = {
            name: float((table.to_dense() - vectors).square().sum() / vectors.square().sum())
            for name, table in tables.items()
        }
    return Figure(
        name="table-collapse",
        title="Table collapse: entropies of pointers, in nats",
        x_label="clusterings",
        y_label="entropy",
        series=tuple(
            steps(f"{name}, H{order}", [values[order - 1] for values in found[name]], is_reference=name in (CE, PQ))
            for order in (2, 1)
            for name in found
        ),
        claims=_claims(found, errors, sizes),
        settings={**vars(sizes), "seed": seed},
    )


def grouped_vectors(sizes: Sizes, generator: Generator) -> Tensor:
    """What the tables should learn, `(num_embeddings, embedding_dim)`."""
    shares = 1 / torch.arange(1, sizes.num_groups + 1)
    groups = torch.multinomial(shares, sizes.num_embeddings, replacement=True, generator=generator)
    centers = torch.randn(sizes.num_groups, sizes.embedding_dim, generator=generator)
    own = torch.randn(sizes.num_embeddings, sizes.embedding_dim, generator=generator)
    return centers[groups] + sizes.noise * own


def _follow(table: Embedding, vectors: Tensor, sizes: Sizes, generator: Generator) -> Entropies:
    """Train the table, cluster it between rounds if it can be, and return its entropies after each."""
    rounds = range(sizes.num_clusterings + 1)
    if isinstance(table, ProductQuantizedEmbedding):
        table.fit_to(vectors, generator=generator)
        return [_entropies(table) for _ in rounds]
    found = []
    for index in rounds:
        if index > 0 and isinstance(table, ClusteredEmbedding):
            table.cluster(generator=generator)
        _train(table, vectors, sizes)
        found.append(_entropies(table))
    return found


def _entropies(table: Embedding) -> tuple[float, ...]:
    """H1 and H2 of the hashed or learned pointers; helpers of CCE do not count."""
    pointers = table.split if isinstance(table, CompositionalConcatEmbedding) else table.assignments
    return column_entropies(pointers(torch.arange(table.num_embeddings)), 2)  # type: ignore[operator]


def _train(table: Embedding, vectors: Tensor, sizes: Sizes) -> None:
    """Fit the codebook to the vectors of all ids; the optimizer starts again, as pointers have changed."""
    ids = torch.arange(len(vectors))
    optimizer = torch.optim.Adam(table.parameters(), lr=sizes.learning_rate)
    for _ in range(sizes.num_steps):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(table(ids), vectors).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def _claims(found: dict[str, Entropies], errors: dict[str, float], sizes: Sizes) -> tuple[Claim, ...]:
    most = math.log(sizes.num_rows), min(2 * math.log(sizes.num_rows), math.log(sizes.num_embeddings))
    (ce1, ce2), (cce1, cce2), (pq1, pq2), (_, circular2) = (_end(found[name]) for name in (CE, CCE, PQ, CIRCULAR))
    low1, low2 = (1 - CLOSE) * pq1, (1 - CLOSE) * pq2
    off1, off2, early = cce1 / pq1 - 1, cce2 / pq2 - 1, PAPER_CLUSTERINGS
    since = next((index for index, (_, h2) in enumerate(found[CIRCULAR]) if h2 < low2), None)
    return (
        Claim(
            "the entropies of CE are near their largest",
            ce1 > NEAR * most[0] and ce2 > NEAR * most[1],
            f"H1 {ce1:.2f} of {most[0]:.2f}, H2 {ce2:.2f} of {most[1]:.2f}",
        ),
        Claim(
            "circular clustering collapses: its columns are too similar, H2 is below product quantisation's",
            circular2 < low2,
            f"{circular2:.2f} and {pq2:.2f}; more than 5 % below from clustering {since} on",
        ),
        Claim(
            "CCE does not collapse: its entropies are not 5 % below product quantisation's, nor above CE's",
            low1 <= cce1 <= ce1 and low2 <= cce2 <= ce2,
            f"H1 {cce1:.2f} in [{pq1:.2f}, {ce1:.2f}], H2 {cce2:.2f} in [{pq2:.2f}, {ce2:.2f}]",
        ),
        Claim(
            "the golden midpoint: the entropies of CCE are close to product quantisation's, within 5 %",
            max(abs(off1), abs(off2)) <= CLOSE,
            f"H1 {off1:+.1%}, H2 {off2:+.1%}; H2 of CCE {found[CCE][early][1]:.2f} after {early} clusterings, "
            f"{cce2:.2f} after {len(found[CCE]) - 1}",
        ),
        Claim(
            "CCE misses less of the vectors than CE and circular clustering",
            errors[CCE] < min(errors[CE], errors[CIRCULAR]),
            ", ".join(f"{name} {error:.2f}" for name, error in errors.items()),
        ),
    )


def _end(found: Entropies) -> tuple[float, float]:
    """The mean of the last tenth: single clusterings differ by chance."""
    last = found[-max(len(found) // 10, 1) :]
    return sum(h1 for h1, _ in last) / len(last), sum(h2 for _, h2 in last) / len(last)
