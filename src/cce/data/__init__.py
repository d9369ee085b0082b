"""Raw logs → prepared rows → batches. And synthetic clicks whose best possible score is known.

Reading prepared data needs torch and no pyarrow; `prepare` needs pyarrow and no torch; `sources` are the raw formats.
Names are loaded when they are first used.
"""

from typing import TYPE_CHECKING

from cce.lazy import lazy_names

if TYPE_CHECKING:
    from cce.data.arrow.tables import TableWriter
    from cce.data.flights import load_flights, write_flights
    from cce.data.loader import EpochShuffle, Loader, join_bags
    from cce.data.preparation.job import Columns, Job, Reading, Splitting, raw_options
    from cce.data.preparation.pipeline import prepare_data
    from cce.data.preparation.vocabulary import load_vocabularies, vocabulary_file
    from cce.data.prepared import PreparedData, Verification, prepare, unseen_lines, unseen_shares, verify_data
    from cce.data.raw_files import COMPRESSED, FORMATS, Input, check_pyarrow, find_format
    from cce.data.raw_rows import RawRows, RowEncoder
    from cce.data.record_format import MANIFEST, checksum, list_parts, read_manifest
    from cce.data.sources import SOURCES, Option, Source, register_source
    from cce.data.sources.criteo import criteo_kaggle_job
    from cce.data.standard_input import InputParts
    from cce.data.stream import PartRows, StreamLoader
    from cce.data.synthetic import Sample, SyntheticClicks, SyntheticConfig, prepare_synthetic
    from cce.data.vocabulary import Vocabulary

__getattr__, __dir__ = lazy_names(__name__)
