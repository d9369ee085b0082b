"""Refit: pointers and codebooks fitted to each id's own training rows."""

from cce.reclustering.refit.coding import RefitEvent
from cce.reclustering.refit.refit import NumRounds, Refit, check_rounds, is_on_parts, most_rounds, why_stop
from cce.reclustering.refit.sources import Source
