"""`cce evaluate`: the scores of a checkpoint on a split of a data set."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from cce.cli.inspect import add_trust
from cce.evaluation import format_scores, list_metrics
from cce.records import strict_json

EXAMPLE = """examples:
  cce evaluate runs/clicks-cce runs/clicks
  cce evaluate runs/clicks-cce/checkpoints/step-0000001000 runs/clicks --split validation --json
  cce evaluate runs/clicks-cce runs/clicks --metrics auc ece ndcg@10 --group-by user"""


def add_verb(verbs: Any) -> None:
    """Add the verb to the parser."""
    parser = verbs.add_parser(
        "evaluate",
        help="score a checkpoint on a split of a data set",
        description="Score a checkpoint on a split of a data set that `cce prepare` made. Of a run, the checkpoint "
        "with the best validation is scored.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkpoint", type=Path, metavar="RUN|CHECKPOINT", help="folder of a run or of a checkpoint")
    parser.add_argument("data", type=Path, help="folder of a data set")
    parser.add_argument("--split", default="test", help="train, validation or test (default: %(default)s)")
    parser.add_argument(
        "--metrics",
        nargs="+",
        metavar="NAME",
        default=None,
        help=f"metrics to compute: {', '.join(list_metrics())} (default: those of the run)",
    )
    parser.add_argument(
        "--group-by",
        metavar="FEATURE",
        default=None,
        help="feature that names the group or query of a row, for metrics by group (default: that of the run)",
    )
    parser.add_argument("--batch-size", type=int, default=16_384, help="rows at a time (default: %(default)s)")
    parser.add_argument(
        "--streaming", action="store_true", help="keep no scores where a metric can do without: an AUC up to near ties"
    )
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    add_trust(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Load and score a checkpoint, and print the scores."""
    from cce.training import evaluate_checkpoint

    found = evaluate_checkpoint(
        options.checkpoint,
        options.data,
        split=options.split,
        metrics=options.metrics,
        group_by=options.group_by,
        batch_size=options.batch_size,
        streaming=options.streaming,
        model=options.model,
        trust_model=options.trust_model,
    )
    scores, where = found.scores, {"checkpoint": str(found.path), "split": options.split, "rows": found.num_rows}
    for line in found.damage:
        print(f"cce evaluate: {line}", file=sys.stderr)
    if options.json:
        print(strict_json(where | {"scores": scores}))
    else:
        print(f"{options.split}, {found.num_rows:,} rows: {format_scores(scores)}")
        print(f"checkpoint: {found.path}")
