"""Which rounds a refit has, and where it stops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cce.checks import check_range

NumRounds = int | Literal["auto"]
AUTO_ROUNDS = 4  # after the trial: three on parts of the rows and one on all of them
SMALLEST_GAIN = 1e-4  # of the score before it, that a trial must gain for other rounds to follow


@dataclass(frozen=True)
class NextRound:
    """What the next round is; `why` says why there is none, if `stops`."""

    stops: bool = False
    why: str = ""
    use_all_rows: bool = False
    from_start: bool = False  # from the model as it was before all rounds
    trains_network: bool = False  # after it
    left: int = 0  # rounds that follow at most


def check_rounds(rounds: object) -> None:
    """Reject anything but "auto" and a number of rounds."""
    if rounds == "auto":
        return
    if not isinstance(rounds, int):
        raise ValueError(f'rounds must be "auto" or a number, got {rounds!r}.')
    check_range("rounds", rounds, 1, 2**31)


def next_round(rounds: NumRounds, scores: Sequence[float | None]) -> NextRound:
    """What comes after the rounds that gave these scores, of which less is better; the first is that of no round.

    All rounds but the last fit each table on a part of the rows and score worse than the last one will, so they cannot
    say whether refits pay. With "auto" and scores, one round on all rows comes first, as a trial. If it gains nothing,
    there are no others; if it does, they begin again where the trial began.
    """
    done = len(scores) - 1
    if rounds == "auto" and scores[0] is not None:
        if done == 0:
            return NextRound(use_all_rows=True, left=AUTO_ROUNDS)
        trial = scores[1]
        if trial is None or not trial < scores[0] * (1 - math.copysign(SMALLEST_GAIN, scores[0])):
            return NextRound(stops=True, why="the trial round did not improve the score")
        num_rounds, done, scores = AUTO_ROUNDS, done - 1, scores[1:]
    else:
        num_rounds = AUTO_ROUNDS if rounds == "auto" else rounds
    if done >= num_rounds:
        return NextRound(stops=True, why="all rounds are done")
    is_last = done == num_rounds - 1
    return NextRound(use_all_rows=is_last, from_start=done == 0, trains_network=not is_last, left=num_rounds - done - 1)
