"""`python docs/tuned_tables.py`: tables of docs/results.md from stored records, each method at its best and with SGD.

Run it after records in results/real/tuned-* or paper-* have changed; a test fails until then.
"""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import NamedTuple

from cce.records import RunRecord, read_records

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results.md"
HEADINGS = {
    "bookcrossing": "### Book-Crossing, tuned",
    "anime": "### Anime, tuned",
    "ml1m": "### MovieLens 1M, tuned",
    "criteo_dac80k": "### 80,000 rows like Criteo's, tuned",
}
HEADER = "| table | served | in training | parameters | test BCE, 3 seeds |\n|:--|--:|--:|--:|--:|"


SGD_HEADER = "| table | seed | epochs | best validation BCE | test BCE | test AUC | served |\n|:--|" + "--:|" * 6


class Row(NamedTuple):
    """The runs of one series with tables of one size."""

    series: str
    nbytes: int
    num_params: int
    records: list[RunRecord]

    @property
    def score(self) -> float:
        """The mean over seeds, as it is printed."""
        return round(mean(record.scores["bce"] for record in self.records), 4)

    def cells(self, named: dict[str, RunRecord]) -> list[str]:
        """What the table shows; what starts from another run takes the training of that."""
        sources = [record.config.get("start_from") for record in self.records]
        found = zip(self.records, sources, strict=True)
        trained = [record if source is None else named[Path(source).name] for record, source in found]
        held = max(record.training_nbytes or 0 for record in trained)
        scores = [record.scores["bce"] for record in self.records]
        spread = f"±{(max(scores) - min(scores)) / 2:.4f}"
        return [
            self.series.replace("weighed", "weighted"),
            _bytes(self.nbytes),
            _bytes(held),
            f"{self.num_params:,}",
            f"{self.score:.4f} {spread}",
        ]


def _bytes(number: int) -> str:
    """Three digits, and a unit."""
    unit, name = (1e6, "MB") if number >= 999_500 else (1e3, "kB")
    return f"{number / unit:.3g} {name}"


def table(records: list[RunRecord]) -> str:
    """The table of a set, by bytes: the best row of each series, and in bold what is better than all before it."""
    found: dict[tuple[str, int, int], list[RunRecord]] = {}
    for record in records:
        found.setdefault((record.series, record.nbytes, record.num_params), []).append(record)
    rows = sorted((Row(*key, each) for key, each in found.items()), key=lambda row: (row.nbytes, row.series != "hash"))
    named, lines = {record.name: record for record in records}, [HEADER]
    for row in rows:
        cells = row.cells(named)
        best = min((other for other in rows if other.series == row.series), key=lambda other: other.score)
        if row.score < min((other.score for other in rows if other.nbytes < row.nbytes), default=float("inf")):
            cells[4] = f"**{cells[4]}**"
        elif row is not best or row.series.startswith("qat"):  # a method that is gone
            continue
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def sgd_table(records: list[RunRecord]) -> str:
    """A line for each run by the paper's protocol."""
    lines = [SGD_HEADER]
    for each in sorted(records, key=lambda record: (-record.nbytes, record.seed)):
        validation, epochs = "", ""
        if each.curve:
            validation, epochs = f"{min(point['bce'] for point in each.curve):.4f}", str(each.curve[-1]["epoch"])
        scores = f"{each.scores['bce']:.4f} | {each.scores['auc']:.4f}"
        lines.append(f"| {each.series} | {each.seed} | {epochs} | {validation} | {scores} | {_bytes(each.nbytes)} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """The page with its tables written again."""
    for name, heading in HEADINGS.items():
        text = _with(text, heading, table(_records(f"tuned-{name}")))
    return _with(text, "### As it is, with SGD", sgd_table(_records("paper-criteo_dac80k")))


def _with(text: str, heading: str, written: str) -> str:
    start = text.index(written.splitlines()[0], text.index(heading))
    return text[:start] + written + text[text.index("\n\n", start) :]


def _records(folder: str) -> list[RunRecord]:
    return read_records(ROOT / "results" / "real" / folder / "records.jsonl")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
