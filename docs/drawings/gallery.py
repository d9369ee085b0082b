"""All drawings, by the name of their file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drawings.cluster_event import draw_cluster_event
from drawings.codes import draw_codes
from drawings.dhe import draw_dhe
from drawings.journey import draw_journey
from drawings.linear import PRODUCTS
from drawings.overview import draw_overview
from drawings.products import draw_ce_mult, draw_collide, draw_low_rank, draw_mixed_dim, draw_tt
from drawings.quantization_aware import draw_qat
from drawings.quantized import draw_quantized
from drawings.refit import draw_refit
from drawings.robe import draw_robe
from drawings.sizes import draw_sizes

if TYPE_CHECKING:
    from collections.abc import Callable

DRAWINGS: dict[str, Callable[[], str]] = {
    **{f"method-{product.method}": product.draw for product in PRODUCTS},
    "method-ce-mult": draw_ce_mult,
    "method-robe": draw_robe,
    "method-dhe": draw_dhe,
    "method-tt": draw_tt,
    "method-collide": draw_collide,
    "method-low-rank": draw_low_rank,
    "method-mixed-dim": draw_mixed_dim,
    "method-quantized": draw_quantized,
    "method-qat": draw_qat,
    "overview": draw_overview,
    "cluster-event": draw_cluster_event,
    "journey-of-a-batch": draw_journey,
    "codes": draw_codes,
    "refit": draw_refit,
    "params-and-bytes": draw_sizes,
}
