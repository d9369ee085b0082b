"""MovieLens: ratings of films, from 100k to 32M of them, in three file formats, in a folder or as the zip of its
makers.

As the authors of the paper do, ratings of exactly 3 are left out, 4 and more are positive, and of each user the last
rating is for the test and the one before it for validation.
"""

from __future__ import annotations

import zipfile
from pathlib import Path, PurePosixPath

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
    """The job of a zip file, of the folder it unpacks to, or of the file of ratings itself."""
    if raw.is_dir():
        found = [Input(path) for path in sorted(raw.rglob("*"))]
    else:
        Input(raw).check(as_lines=False)  # the bytes of an archive are no text
        found = [Input(raw)]
    if raw.suffix == ".zip" and not zipfile.is_zipfile(raw):
        raise ValueError(f"{raw} must be a whole zip archive, and it is damaged.")
    if zipfile.is_zipfile(raw):
        with zipfile.ZipFile(raw) as archive:
            found = [Input(raw, name) for name in sorted(archive.namelist())]
    by_name = [(PurePosixPath(each.member or each.path.name).name, each) for each in found]
    known = next(((name, each) for name, each in by_name if name in FORMATS), None)
    if known is None:
        raise FileNotFoundError(f"{raw} must be or hold one of {', '.join(FORMATS)}, and there is none.")
    return Job(MOVIELENS.name, (known[1],), COLUMNS, FORMATS[known[0]], Splitting("last-two"))


MOVIELENS = Source(
    name="movielens",
    about="ratings of MovieLens 100k, 1M, 10M, 20M, 25M or latest, as a zip, a folder or the file itself",
    splits=("last-two", "temporal", "random"),
    make=lambda raw, _options: movielens_job(raw),
)
