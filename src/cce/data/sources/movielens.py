"""MovieLens: ratings of films, from 100k to 32M of them, in three file formats.

As the authors of the paper do, ratings of exactly 3 are left out, 4 and more are positive, and of each user the last
rating is for the test and the one before it for validation.
"""

from pathlib import Path

from cce.data.preparation.job import Columns, Job, Reading, Splitting
from cce.data.raw_files import Input
from cce.data.sources.registry import Source

NAMES = ("user", "movie", "rating", "timestamp")
FORMATS = {  # by the name of the file of ratings
    "u.data": Reading(names=NAMES, delimiter="\t", threshold=4, drop_label=3),  # 100k
    "ratings.dat": Reading(names=NAMES, delimiter="::", threshold=4, drop_label=3),  # 1M, 10M
    "ratings.csv": Reading(names=NAMES, delimiter=",", has_header=True, threshold=4, drop_label=3),  # 20M, 25M, latest
}
COLUMNS = Columns("rating", ("user", "movie"), timestamp="timestamp", user="user")


def movielens_job(raw: Path) -> Job:
    """The job of the file of ratings, or of the folder that holds it."""
    paths = sorted(raw.rglob("*")) if raw.is_dir() else [raw]
    path = next((path for path in paths if path.name in FORMATS), None)
    if path is None:
        hint = ": unpack it first" if raw.suffix == ".zip" else ""
        raise FileNotFoundError(f"{raw} must be or hold one of {', '.join(FORMATS)}, and there is none{hint}.")
    return Job(MOVIELENS.name, (Input(path),), COLUMNS, FORMATS[path.name], Splitting("last-two"))


MOVIELENS = Source(
    name="movielens",
    about="ratings of MovieLens 100k, 1M, 10M, 20M, 25M or latest: the file, or the folder of the unpacked zip",
    splits=("last-two", "temporal", "random"),
    make=lambda raw, _options: movielens_job(raw),
)
