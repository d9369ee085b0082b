"""Eight real data sets, two models, plain PyTorch loops: what `cce` by default loses or gains against full tables.

    python -m benchmarks.real_sets run [--sets NAME …] [--models NAME …] [--ways NAME …] [--seeds 3] [--data FOLDER]
    python -m benchmarks.real_sets table        # write the tables of README.md and docs/ from the records

Every way has the same rows, network, Adam, batches and number of epochs. Its learning rate is the one of `RATES` with
the lowest loss on validation rows, in the mean over seeds (for rivals, with the first seed; ways that begin with a full
table take the full table's). Scores are test BCE of the weights that validated best; nothing else looks at test rows.
Each run has a process of its own, whose peak memory is measured; the way "none" has no tables, and what others take
above it is what their tables take. A run that is in the records is not repeated, so `run` can be stopped at any time.
Needs pyarrow.
"""

import argparse
import os
from pathlib import Path

from benchmarks.real_sets.data import SETS
from benchmarks.real_sets.models import MODELS
from benchmarks.real_sets.runs import run
from benchmarks.real_sets.tables import write_tables
from benchmarks.real_sets.ways import WAYS

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
verbs = parser.add_subparsers(required=True)
runs = verbs.add_parser("run")
runs.add_argument("--data", type=Path, default=Path(os.environ.get("CCE_DATA", "../shared/data")))
runs.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
runs.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
runs.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
runs.add_argument("--seeds", type=int, default=3)
runs.set_defaults(run=run)
verbs.add_parser("table").set_defaults(run=write_tables)
options = parser.parse_args()
options.run(options)
