"""Raw logs → prepared rows → batches. And synthetic clicks whose best possible score is known.

Reading prepared data needs torch and no pyarrow; `prepare` needs pyarrow and no torch; `sources` are the raw formats.
Names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cce.lazy import lazy_names

if TYPE_CHECKING:
    from cce.data.loader import Loader
    from cce.data.manifest import MANIFEST, checksum, has_labels, read_manifest
    from cce.data.occurrences import unseen_lines, unseen_shares
    from cce.data.prepare.arrow import TableWriter
    from cce.data.prepare.columns import Columns, Reading
    from cce.data.prepare.inputs import Input
    from cce.data.prepare.job import Job, Splitting, VocabularyRule
    from cce.data.prepare.pipeline import prepare_data
    from cce.data.prepare.synthetic import SyntheticConfig, prepare_synthetic
    from cce.data.prepare.vocabulary import index_vocabulary, vocabulary_file
    from cce.data.prepare.writer import check_new
    from cce.data.prepared import PreparedData
    from cce.data.raw_format import FORMATS, STANDARD, check_pyarrow, find_format
    from cce.data.raw_rows import RawRows
    from cce.data.row_encoder import RowEncoder
    from cce.data.shuffle import EpochShuffle
    from cce.data.sources import SOURCES, Option, Source, register_source
    from cce.data.sources.criteo_kaggle import criteo_kaggle_job
    from cce.data.sources.criteo_terabyte import criteo_terabyte_job
    from cce.data.sources.criteo_text import write_criteo_text
    from cce.data.sources.movielens import movielens_job
    from cce.data.sources.recbole import recbole_job
    from cce.data.sources.reczoo import reczoo_job
    from cce.data.sources.reuse import raw_options, reuse_vocabulary
    from cce.data.sources.table import table_job
    from cce.data.synthetic import Sample, SyntheticClicks
    from cce.data.verify import Verification, verify_data
    from cce.data.vocabulary import Texts, Vocabulary

__all__ = [
    "FORMATS",
    "MANIFEST",
    "SOURCES",
    "STANDARD",
    "Columns",
    "EpochShuffle",
    "Input",
    "Job",
    "Loader",
    "Option",
    "PreparedData",
    "RawRows",
    "Reading",
    "RowEncoder",
    "Sample",
    "Source",
    "Splitting",
    "SyntheticClicks",
    "SyntheticConfig",
    "TableWriter",
    "Texts",
    "Verification",
    "Vocabulary",
    "VocabularyRule",
    "check_new",
    "check_pyarrow",
    "checksum",
    "criteo_kaggle_job",
    "criteo_terabyte_job",
    "find_format",
    "has_labels",
    "index_vocabulary",
    "movielens_job",
    "prepare_data",
    "prepare_synthetic",
    "raw_options",
    "read_manifest",
    "recbole_job",
    "reczoo_job",
    "register_source",
    "reuse_vocabulary",
    "table_job",
    "unseen_lines",
    "unseen_shares",
    "verify_data",
    "vocabulary_file",
    "write_criteo_text",
]

__getattr__, __dir__ = lazy_names(__name__)
