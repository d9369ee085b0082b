"""Recommendation models: a batch in, logits out."""

from cce.models.dcnv2 import DCNv2
from cce.models.deepfm import DeepFM
from cce.models.dlrm import DLRM
from cce.models.gmf import GMF
from cce.models.mlp import MLP
from cce.models.registry import MODELS, create_model, find_model, model_note, register_model
