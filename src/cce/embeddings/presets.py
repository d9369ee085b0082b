"""The presets of CCE: the paper's settings, and ours, tuned by measurement (`docs/results.md`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from cce.clustering import ClusterSettings
from cce.embeddings.compositional import PAPER_COLUMNS, default_columns
from cce.embeddings.training_defaults import NEVER, TWICE_AN_EPOCH, TrainingDefaults

if TYPE_CHECKING:
    from collections.abc import Mapping

PresetName = Literal["tuned", "paper"]


@dataclass(frozen=True)
class Preset(TrainingDefaults):
    """The defaults of CCE, in training and of a single table."""

    num_columns: int = PAPER_COLUMNS
    settings: ClusterSettings = field(default_factory=ClusterSettings)

    def columns(self, embedding_dim: int) -> int:
        """The number of columns, if it divides the dimension; else the divisor that is nearest to the paper's 4."""
        return self.num_columns if embedding_dim % self.num_columns == 0 else default_columns(embedding_dim)

    def options_for(self, embedding_dim: int) -> dict[str, Any]:
        """The arguments, with the number of columns."""
        return {"num_columns": self.columns(embedding_dim), **self.options}


# no helpers, which a refit leaves at zero; 4 columns, as 8 are hardly better and cost twice the pointers; ids that are
# seen once say too little of themselves, and share a vector
NUM_ROWS = 256  # of a column; more are no better, and a pointer would take more than a byte
LEARNED_OPTIONS = {"preset": "tuned", "num_helpers": 0, "share_tail": True, "start_scale": "dlrm", "max_rows": NUM_ROWS}
LEARNED = Preset(LEARNED_OPTIONS, min_count=2, schedule=NEVER)
HOW_TO_CLUSTER = ("combine", "first_rows", "helper_start", "num_helpers", "settings", "settle_after", "track_counts")

PRESETS: Mapping[str, Preset] = {
    "tuned": Preset(
        {"preset": "tuned"},
        num_rows=NUM_ROWS,
        min_count=5,
        schedule=TWICE_AN_EPOCH,
        num_columns=8,
        learned=LEARNED,
        code_bits=8,
        refits=5,
        says_how_to_cluster=frozenset(HOW_TO_CLUSTER),
        settings=ClusterSettings(warm_iter=4, tol=1e-3),  # a clustering in a quarter of the time
    ),
    "paper": Preset({"preset": "paper"}, min_count=1),
}
