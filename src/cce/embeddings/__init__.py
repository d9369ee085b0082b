"""The methods: one file each, one contract, and the bag that pools any of them."""

from cce.embeddings.admission import RowPolicy, age_sketch, note_seen, seen_before, wanted
from cce.embeddings.bag import EmbeddingBag, check_offsets
from cce.embeddings.base import MAX_IDS, Embedding
from cce.embeddings.cce import CCEEmbedding
from cce.embeddings.cluster_step import Learned
from cce.embeddings.clusterable import (
    Clusterable,
    ClusterEvent,
    Finalizable,
    RowTransfer,
    StagedClustering,
    check_plain_parameters,
    cluster_all,
    naming,
    stage_all,
)
from cce.embeddings.clustered import ClusteredEmbedding, CodebookShape
from cce.embeddings.colliding import CollidingEmbedding
from cce.embeddings.compact_form import POINTS_PER_ROW, Codebooks, Compact
from cce.embeddings.compositional import (
    CompositionalConcatEmbedding,
    CompositionalProductEmbedding,
    CompositionalSumEmbedding,
    piece_shape,
)
from cce.embeddings.dhe import DeepHashEmbedding
from cce.embeddings.eviction import make_space
from cce.embeddings.full import FullEmbedding, HashingTrickEmbedding
from cce.embeddings.hash_embedding import HashEmbedding
from cce.embeddings.initialization import (
    StartScale,
    check_placement,
    normal_,
    projection_,
)
from cce.embeddings.int8_rows import MOST_ROWS, Int8Rows
from cce.embeddings.linear import LinearEmbedding
from cce.embeddings.low_rank import LowRankEmbedding
from cce.embeddings.mixed_dimension import MixedDimensionEmbedding
from cce.embeddings.options import Options, TrainingDefaults, paper_schedule, rules, whole
from cce.embeddings.product_quantized import ProductQuantizedEmbedding
from cce.embeddings.quantized import QuantizedEmbedding
from cce.embeddings.registry import (
    METHODS,
    create_embedding,
    list_methods,
    make_table,
    register_method,
)
from cce.embeddings.robe import RobeEmbedding
from cce.embeddings.row_gradients import Pending, merge_pending, waits
from cce.embeddings.row_lookup import RowTables, compiled_look_up, row_tables
from cce.embeddings.sharded_lookup import look_up_pointers
from cce.embeddings.sharded_state import Share, model_state, sharded_tables, share_of, unshard, whole_state
from cce.embeddings.shards import Route, Shards, check_shards
from cce.embeddings.sizing import Shapes, TableRequest
from cce.embeddings.tensor_train import TensorTrainEmbedding
