"""`cce embed`: the vectors of a feature, for retrieval."""

import argparse
from contextlib import ExitStack
from pathlib import Path

from cce.cli.loading import add_run, load
from cce.files import check_target, replace_file
from cce.records import strict_json

HELP = "write the vectors of a feature, for retrieval"
DESCRIPTION = (
    "Write the vectors of all ids of a feature to a .npy file, which numpy, faiss or usearch can map, and their raw "
    "values to a Parquet file beside it (vectors.values.parquet for vectors.npy), unless data is synthetic or ids are "
    "hashes. Row 0 is for unseen values; a missing value is empty text."
)
EXAMPLE = """examples:
  cce embed runs/clicks-cce --feature item --out vectors.npy
  cce embed one.ccez --feature user --out users.npy --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--feature", required=True, metavar="NAME", help="feature whose vectors to write")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE.npy", help="file of vectors to write")


def run(options: argparse.Namespace) -> None:
    from cce.runs import values_file, write_values, write_vectors

    if options.out.suffix != ".npy":
        raise ValueError(f"--out must end in .npy, got {str(options.out)!r}.")
    for path in (options.out, values_file(options.out)):
        check_target("--out", path)
    found = load(options)
    vectors = found.vectors(options.feature)
    report = {"checkpoint": str(found.path), "vectors": str(options.out), "shape": list(vectors.shape)}
    with ExitStack() as stack:
        vocabulary = found.vocabularies[options.feature] if found.has_raw_values else None
        if vocabulary is not None and vocabulary.kind != "hashed":
            report["values"] = str(values_file(options.out))
            temporary = stack.enter_context(replace_file(values_file(options.out)))  # until there are vectors as well
            write_values(vocabulary, temporary, progress=not options.json)
        write_vectors(vectors, options.out, progress=not options.json)
    shape = " × ".join(f"{size:,}" for size in vectors.shape)
    lines = [f"{shape}, float32: {options.out}"] + ([f"raw values: {report['values']}"] if "values" in report else [])
    print(strict_json(report) if options.json else "\n".join(lines))
