"""A model of your own in the trainer: DeepFM (Guo et al., 2017), from this file, on a small synthetic click log.

From the shell the same is `cce train DATA --model examples/own_model.py:DeepFM --cap 2000 …`.
"""

import tempfile
from pathlib import Path

import torch
from torch import nn

import cce
from cce.data import SyntheticConfig, prepare_synthetic
from cce.schema import Batch, Schema


class DeepFM(nn.Module):
    """Dot products of all pairs of vectors, and a network beside them. Made from a schema and its tables."""

    def __init__(self, schema: Schema, tables: nn.Module, hidden: int = 32) -> None:
        super().__init__()
        num_inputs = len(schema.features) * tables.embedding_dim + len(schema.dense)
        self.tables = tables
        self.deep = nn.Sequential(nn.Linear(num_inputs, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, batch: Batch) -> torch.Tensor:
        vectors = self.tables(batch.ids, batch.offsets)  # (B, F, D)
        pairs = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2
        return pairs + self.deep(torch.cat([vectors.flatten(1), batch.dense], dim=1)).squeeze(1)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder) / "clicks", Path(folder) / "run"
        sizes = SyntheticConfig(num_rows=20_000, vocabulary_sizes=(1_000, 300), num_clusters=8, num_dense=2)
        prepare_synthetic(data, sizes, progress=False)
        config = cce.training.TrainConfig(
            data=str(data),
            model=f"{__file__}:DeepFM",
            model_options={"hidden": 16},
            method="cce",
            cap=2_000,
            epochs=3,
            batch_size=256,
            optimizer="adam",
            lr=0.01,
            threads=1,
        )
        record = cce.training.Trainer(config, out).run()
        print(f"{record.num_params:,} params  test BCE {record.scores['bce']:.4f}  AUC {record.scores['auc']:.4f}")


if __name__ == "__main__":
    main()
