"""The methods: one file each, one contract, and the bag that pools any of them."""

from cce.embeddings.bag import EmbeddingBag
from cce.embeddings.base import MAX_IDS, Embedding
from cce.embeddings.ce_concat import CompositionalConcatEmbedding
from cce.embeddings.ce_mult import CompositionalProductEmbedding
from cce.embeddings.ce_sum import CompositionalSumEmbedding
from cce.embeddings.cluster_pool import cluster_all, naming, stage_all
from cce.embeddings.clusterable import Clusterable, ClusterEvent, RowTransfer, StagedClustering, check_plain_parameters
from cce.embeddings.clustered import ClusteredEmbedding
from cce.embeddings.colliding import CollidingEmbedding
from cce.embeddings.dhe import DeepHashEmbedding
from cce.embeddings.full import FullEmbedding
from cce.embeddings.hash_embedding import HashEmbedding
from cce.embeddings.hashing_trick import HashingTrickEmbedding
from cce.embeddings.linear import LinearEmbedding
from cce.embeddings.mixed_dimension import MixedDimensionEmbedding
from cce.embeddings.product_quantized import ProductQuantizedEmbedding
from cce.embeddings.registry import METHODS, check_placement, create_embedding, list_methods, make_table
from cce.embeddings.robe import RobeEmbedding
from cce.embeddings.sizing import TableRequest
from cce.embeddings.tensor_train import TensorTrainEmbedding

__all__ = [
    "MAX_IDS",
    "METHODS",
    "ClusterEvent",
    "Clusterable",
    "ClusteredEmbedding",
    "CollidingEmbedding",
    "CompositionalConcatEmbedding",
    "CompositionalProductEmbedding",
    "CompositionalSumEmbedding",
    "DeepHashEmbedding",
    "Embedding",
    "EmbeddingBag",
    "FullEmbedding",
    "HashEmbedding",
    "HashingTrickEmbedding",
    "LinearEmbedding",
    "MixedDimensionEmbedding",
    "ProductQuantizedEmbedding",
    "RobeEmbedding",
    "RowTransfer",
    "StagedClustering",
    "TableRequest",
    "TensorTrainEmbedding",
    "check_placement",
    "check_plain_parameters",
    "cluster_all",
    "create_embedding",
    "list_methods",
    "make_table",
    "naming",
    "stage_all",
]
