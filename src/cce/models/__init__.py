"""Recommendation models: a batch in, logits out."""

from cce.models.dlrm import DLRM
from cce.models.gmf import GMF
from cce.models.registry import MODELS, create_model, find_model, register_model

__all__ = ["DLRM", "GMF", "MODELS", "create_model", "find_model", "register_model"]
