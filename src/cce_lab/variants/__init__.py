"""Variants of the paper's CCE, most of them from its appendix "What didn't work", as methods of their own.

`cce_lab.methods` registers them.
"""

from cce_lab.variants.circular import CircularEmbedding
from cce_lab.variants.counted import CountedEmbedding
from cce_lab.variants.first_rows import FirstRowsEmbedding
from cce_lab.variants.helpers import HelpersEmbedding
from cce_lab.variants.residual_helpers import ResidualHelpersEmbedding
from cce_lab.variants.settling import SettlingEmbedding
from cce_lab.variants.summed import SummedEmbedding

VARIANTS = (
    CircularEmbedding,
    CountedEmbedding,
    FirstRowsEmbedding,
    HelpersEmbedding,
    ResidualHelpersEmbedding,
    SettlingEmbedding,
    SummedEmbedding,
)
__all__ = [
    "VARIANTS",
    "CircularEmbedding",
    "CountedEmbedding",
    "FirstRowsEmbedding",
    "HelpersEmbedding",
    "ResidualHelpersEmbedding",
    "SettlingEmbedding",
    "SummedEmbedding",
]
