"""`cce evaluate`: the scores of a checkpoint on a split of a data set."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cce.cli.inspect import add_trust
from cce.records import strict_json

EXAMPLE = """examples:
  cce evaluate runs/clicks-cce runs/clicks
  cce evaluate runs/clicks-cce/checkpoints/step-0000001000 runs/clicks --split validation --json"""


def add_verb(verbs: Any) -> None:
    """Add the verb to the parser's."""
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
    parser.add_argument("--batch-size", type=int, default=16_384, help="rows at a time (default: %(default)s)")
    parser.add_argument("--streaming", action="store_true", help="do not keep all scores: an AUC up to near ties")
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    add_trust(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Load, score, and tell."""
    from cce.training.inspection import evaluate_checkpoint

    found = evaluate_checkpoint(
        options.checkpoint,
        options.data,
        split=options.split,
        batch_size=options.batch_size,
        streaming=options.streaming,
        model=options.model,
        trust_model=options.trust_model,
    )
    scores, where = found.scores, {"checkpoint": str(found.path), "split": options.split, "rows": found.num_rows}
    for line in found.damage:
        print(f"cce evaluate: {line}", file=sys.stderr)
    if options.json:
        print(strict_json(where | asdict(scores)))
    else:
        print(f"{options.split}, {found.num_rows:,} rows: BCE {scores.bce:.5f}, AUC {scores.auc:.5f}")
        print(f"checkpoint: {found.path}")
