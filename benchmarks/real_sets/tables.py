"""Tables of README.md and docs/, written from the records of the benchmark."""

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import mean

from benchmarks.real_sets.runs import Record, average, chosen, read_records

NAMES = {
    "ml1m": "MovieLens 1M",
    "anime": "Anime",
    "bookcrossing": "Book-Crossing",
    "criteo_dac80k": "80,000 rows like Criteo's",
    "debian_deps": "Debian dependencies",
    "tennis": "Tennis, by time",
    "grocery_repeat": "Grocery, by time",
    "movietweetings": "MovieTweetings, by time",
}
MODEL_TITLES = {"deepfm": "DeepFM", "dlrm": "DLRM"}
PROMISE = {
    "full": "`nn.Embedding`",
    "cce": "`cce`, own loop",
    "cce-train": "`cce train`",
    "cce-paper": "`cce-paper`, own loop",
}
TITLES = {
    "full": "full",
    "full-sparse": "full, SparseAdam",
    "full-merged": "full, rare ids merged",
    "int8-after": "full, then int8",
    "pq": "full, then `pq`",
    "cce": "`cce`",
    "cce-train": "`cce train`",
    "cce-min-count-2": "`cce`, `min_count=2`",
    "hash": "`hash`",
    "ce-concat": "`ce-concat`",
    "mixed-dim": "`mixed-dim`",
    "cce-paper": "`cce-paper`",
}
MEANS = ("full", "cce", "cce-train", "cce-paper")
HALVES = {
    "MovieLens, Anime, 80,000 rows, Debian": ("ml1m", "anime", "criteo_dac80k", "debian_deps"),
    "Book-Crossing, Tennis, Grocery, MovieTweetings": ("bookcrossing", "tennis", "grocery_repeat", "movietweetings"),
}
RIVALS = ("full", "full-merged", "int8-after", "pq", "mixed-dim", "hash", "ce-concat", "cce")
IN_EQUAL_BYTES = ("pq", "mixed-dim", "hash", "ce-concat")

Runs = dict[tuple[str, str, str], list[Record]]


def summary_table(records: list[Record]) -> str:
    """`cce` beside the full table and the best rival, a line for each set: all models, and what DeepFM takes."""
    runs = chosen(records)
    models = [model for model in MODEL_TITLES if any(own[1:] == (model, "cce") for own in runs)]
    heads = " | ".join(f"{MODEL_TITLES[model]}, {' | '.join(_columns(runs, model))}" for model in models)
    lines = [
        f"| test BCE, 3 seeds | {heads} | served, full | `cce` | in training, full | `cce` | CPU time |",
        "|---|" + "--:|" * (heads.count("|") + 6),
    ]
    for name, title in NAMES.items():
        if any((name, model, way) not in runs for model in models for way in ("full", "cce")):
            continue
        cells = [cell for model in models for cell in _scores(runs, name, model)]
        both = [runs[name, models[0], way] for way in ("full", "cce")]
        cells += [megabytes(average(own, "served")) for own in both]
        cells += [megabytes(in_training(runs, name, models[0], way)) for way in ("full", "cce")]
        seconds = [average(own, "cpu_seconds") for own in both]
        lines.append(f"| {title} | {' | '.join(cells)} | {seconds[1] / seconds[0]:.1f}× |")
    return "\n".join(lines)


def _columns(runs: Runs, model: str) -> list[str]:
    """What is shown of a model."""
    has_rivals = all(any((name, model, way) in runs for way in IN_EQUAL_BYTES) for name in NAMES)
    return ["full", "rival", "`cce`"] if has_rivals else ["full", "`cce`"]


def _scores(runs: Runs, name: str, model: str) -> list[str]:
    """The scores of full tables, of the rival in equal bytes that validates best, and of `cce`; the best in bold."""
    ways = {"full": "full", "`cce`": "cce"}
    if "rival" in (columns := _columns(runs, model)):
        rivals = [way for way in IN_EQUAL_BYTES if (name, model, way) in runs]
        ways["rival"] = min(rivals, key=lambda way: average(runs[name, model, way], "validation"))
    scores = {column: round(average(runs[name, model, ways[column]], "test"), 4) for column in columns}
    best = min(scores.values())
    return [f"**{scores[each]:.4f}**" if scores[each] == best else f"{scores[each]:.4f}" for each in columns]


def in_training(runs: Runs, name: str, model: str, way: str) -> float:
    """Measured bytes of a run above those of one without tables."""
    return max(0.0, average(runs[name, model, way], "peak") - average(runs[name, model, "none"], "peak"))


def megabytes(nbytes: float) -> str:
    """As tables show it."""
    return f"{nbytes / 1e6:.2f} MB" if nbytes < 1e7 else f"{nbytes / 1e6:.0f} MB"


def promise_table(records: list[Record]) -> str:
    """The README's lines in a loop of one's own beside full tables, `cce train` and the paper's algorithm."""
    runs = chosen(records)
    lines = ["| DeepFM, 3 seeds | test BCE | in training, measured | served | CPU time |", "|---|--:|--:|--:|--:|"]
    for name in ("ml1m", "anime"):
        for way, title in PROMISE.items():
            if own := runs.get((name, "deepfm", way)):
                is_verb = way == "cce-train"  # whose process has code in it that the one without tables never loads
                held = average(own, "held") if is_verb else in_training(runs, name, "deepfm", way)
                held = f"{megabytes(held)}{', computed' * is_verb}"
                sizes = held, megabytes(average(own, "served"))
                cells = [f"{average(own, 'test'):.4f}", *sizes, f"{average(own, 'cpu_seconds'):.0f} s"]
                lines.append(f"| {NAMES[name]}, {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def all_tables(records: list[Record]) -> str:
    """Test BCE and bytes, means over seeds: `cce` in both ways, and rivals."""
    runs, titles = chosen(records), MODEL_TITLES.items()
    own = [_scores_and_bytes(runs, model, title, MEANS) for model, title in titles]
    compared = sorted({model for _, model, way in runs if way in IN_EQUAL_BYTES})
    own += [_scores_and_bytes(runs, model, MODEL_TITLES[model], RIVALS) for model in compared]
    return "\n\n".join(own)


def _scores_and_bytes(runs: Runs, model: str, title: str, ways: tuple[str, ...]) -> str:
    ways = tuple(way for way in ways if any(own[1:] == (model, way) for own in runs))
    lines = [f"| {title} | {' | '.join(TITLES[way] for way in ways)} |", "|---|" + "--:|" * len(ways)]
    for name, set_title in NAMES.items():
        found = [runs.get((name, model, way)) for way in ways]
        cells = [f"{average(own, 'test'):.4f}, {average(own, 'served') / 1e3:,.0f} kB" if own else "" for own in found]
        if any(cells):
            lines.append(f"| {set_title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def halves_table(records: list[Record]) -> str:
    """The mean rank of each rate on validation rows, over models and the sets of each half."""
    rates = sorted({each["lr"] for each in records if each["way"] == "cce"})
    lines = [f"| mean rank of a rate | {' | '.join(map(str, rates))} |", "|---|" + "--:|" * len(rates)]
    for way in ("full", "cce"):
        for half, names in HALVES.items():
            ranks = [_ranks(records, name, model, way) for name in names for model in MODEL_TITLES]
            cells = [f"{mean(each):.2f}" for each in zip(*ranks, strict=True)]
            lines.append(f"| {TITLES[way]}, {half} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _ranks(records: list[Record], name: str, model: str, way: str) -> list[int]:
    """1 for the rate with the lowest validation loss; in the order of the rates."""
    losses: dict[float, list[float]] = {}
    for each in records:
        if (each["set"], each["model"], each["way"]) == (name, model, way):
            losses.setdefault(each["lr"], []).append(each["validation"])
    means = [mean(losses[rate]) for rate in sorted(losses)]
    return [1 + sorted(means).index(each) for each in means]


def with_tables(text: str, table: str) -> str:
    """A page with its table between the two marks."""
    begin, end = "<!-- real_sets: begin -->", "<!-- real_sets: end -->"
    before, rest = text.split(begin)
    return f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}"


PAGES: dict[Path, Callable[[list[Record]], str]] = {
    Path("README.md"): summary_table,
    Path("docs/results.md"): all_tables,
    Path("docs/compress.md"): promise_table,
    Path("docs/notes.md"): halves_table,
}


def write_tables(options: argparse.Namespace) -> None:
    """Write the tables of all pages."""
    del options
    for page, table in PAGES.items():
        page.write_text(with_tables(page.read_text(), table(read_records())))
