"""Refit: pointers and codebooks fitted to each id's own training rows."""

from cce.reclustering.refit.refit import Refit
from cce.reclustering.refit.rounds import NextRound, NumRounds, check_rounds, next_round
from cce.reclustering.refit.sources import Fold, Rows, Source, cross_entropy
from cce.reclustering.refit.step import RefitEvent

__all__ = [
    "Fold",
    "NextRound",
    "NumRounds",
    "Refit",
    "RefitEvent",
    "Rows",
    "Source",
    "check_rounds",
    "cross_entropy",
    "next_round",
]
