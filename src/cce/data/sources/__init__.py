"""Raw formats, one file each. A new one is a file here and a line below."""

from cce.data.sources.criteo import CRITEO_KAGGLE, CRITEO_TERABYTE
from cce.data.sources.movielens import MOVIELENS
from cce.data.sources.recbole import RECBOLE
from cce.data.sources.reczoo import RECZOO
from cce.data.sources.registry import SOURCES, Option, Source, register_source
from cce.data.sources.table import TABLE

for _source in (CRITEO_KAGGLE, CRITEO_TERABYTE, MOVIELENS, RECBOLE, RECZOO, TABLE):
    register_source(_source)

__all__ = ["SOURCES", "Option", "Source", "register_source"]
