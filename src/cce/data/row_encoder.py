"""Raw rows → batches, with the ids and the transforms of the data set that a model was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cce.data.loader import cut_batch
from cce.data.prepare.arrow import as_texts
from cce.data.prepare.reading import clean_columns
from cce.data.split_rows import join_bags
from cce.data.vocabulary import Texts
from cce.schema import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cce.data.prepare.arrow import RawBlock, Words
    from cce.data.raw_rows import RawRows
    from cce.data.vocabulary import Vocabulary
    from cce.schema import Schema


@dataclass(frozen=True)
class RowEncoder:
    """Encodes rows as `raw_rows` reads them. A value that is unseen or missing has id 0, as in training."""

    schema: Schema
    raw_rows: RawRows
    vocabularies: Mapping[str, Vocabulary]

    def batches(self, rows: Any, *, batch_size: int, form: str | None = None) -> Iterator[Batch]:
        """The batches of rows of any kind (see `RawRows.blocks`), in order. Labels are NaN where none are read."""
        for raw in self.raw_rows.blocks(rows, form=form):
            batch = self.encode(raw)
            whole, rest = divmod(len(batch), batch_size)
            if len(batch):
                yield from cut_batch(batch, [batch_size] * whole + ([rest] if rest else []))

    def encode(self, raw: RawBlock) -> Batch:
        """All rows of a block."""
        columns, num_rows = self.raw_rows.columns, len(raw.lines)
        clean = clean_columns(raw, columns, self.raw_rows.reading)
        dense = [clean.numbers[f"dense {index}"] for index in range(len(self.schema.dense))]
        ids, offsets = self._ids(clean.words, num_rows)
        labels = clean.numbers.get("label", np.full(num_rows, np.nan, np.float32))
        weights = clean.numbers.get("weight")
        return Batch(
            dense=torch.from_numpy(np.stack(dense, 1) if dense else np.empty((num_rows, 0), np.float32)),
            ids=torch.from_numpy(ids),
            labels=torch.from_numpy(labels),
            offsets=None if offsets is None else torch.from_numpy(offsets),
            weights=None if weights is None else torch.from_numpy(weights),
        )

    def _ids(self, words: Mapping[str, Words], num_rows: int) -> tuple[np.ndarray, np.ndarray | None]:
        names = [feature.name for feature in self.schema.features]
        ids = [self._ids_of(name, words[name]) for name in names]
        if not self.schema.is_multi_hot:
            return np.stack(ids, 1), None
        lengths = [words[name].lengths for name in names]
        ones = np.ones(num_rows, np.int64)
        return join_bags([(values, ones if each is None else each) for values, each in zip(ids, lengths, strict=True)])

    def _ids_of(self, name: str, words: Words) -> np.ndarray:
        """Distinct values are looked up once; the 0 at the end is where the index -1 of a missing value looks."""
        vocabulary = self.vocabularies[name]
        texts = Texts(*as_texts(words.values, whole=vocabulary.kind == "integers"))
        return np.append(vocabulary.find(texts), 0)[words.indices]
