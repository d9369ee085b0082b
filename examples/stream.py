"""Train on a stream in a loop of your own: ids are strings, nobody knows how many; each day is scored, then trained on.

Ten made days, in which users and items are born and die. On day six the process is killed; started again, it goes on
from its last saved state, and ends with the table of scores by day. What each day has changed is shipped as a delta.
"""

import copy
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

import cce
from cce.data import SyntheticClicks
from cce.serving import numpy_reader, write_bundle

SIZES, DIM, NUM_DAYS, ROWS, BATCH = (600, 200), 8, 10, 6_000, 200
STATE, SERVED, KILLED = Path("stream.pt"), Path("stream-served"), "--killed-on-day-six"


class Model(nn.Module):
    """Two tables without a bound, and a network."""

    def __init__(self) -> None:
        super().__init__()
        self.users = cce.create_embedding("cce", None, DIM, max_rows=1_500, seed=0)  # the least frequent ids go
        self.items = cce.create_embedding("cce", None, DIM, seed=1)
        self.deep = nn.Sequential(nn.Linear(2 * DIM, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        user, item = self.users(users), self.items(items)
        return (user * item).sum(1) + self.deep(torch.cat([user, item], dim=1)).squeeze(1)


def read_day(day: int) -> tuple[list[str], list[str], Tensor, float]:
    """The log of a day, and the best loss that any model could have on it."""
    world = SyntheticClicks(SIZES, num_clusters=6, turnover=3.0, generator=torch.Generator().manual_seed(0))
    times = (day + torch.arange(ROWS, dtype=torch.float64) / ROWS) / NUM_DAYS
    sample = world.sample(ROWS, times=times, generator=torch.Generator().manual_seed(1 + day))
    users, items = sample.ids.unbind(1)
    return [f"user-{x}" for x in users], [f"item-{x}" for x in items], sample.labels, sample.oracle_bce


def train_days(*, is_killed: bool) -> list[tuple[float, float, int, int]]:
    torch.manual_seed(0)
    model = Model()
    optimizer = cce.optim.Adam(model, lr=0.01)
    first_day, first_row, scores = 0, 0, []
    if STATE.exists():
        saved = torch.load(STATE)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first_day, first_row, scores = saved["day"], saved["row"], saved["scores"]
        print(f"goes on at row {first_row:,} of day {first_day + 1}")
    for day in range(first_day, NUM_DAYS):
        users, items, labels, oracle = read_day(day)
        ids = [torch.from_numpy(cce.hash_ids(values)) for values in (users, items)]  # strings → 64-bit ids
        if len(scores) == day:  # before it is trained on, once
            with torch.no_grad():
                bce = float(binary_cross_entropy_with_logits(model(*ids), labels))
            scores.append((bce, oracle, model.users.rows.num_rows - 1, cce.summary(model).nbytes))
        for row in range(first_row if day == first_day else 0, ROWS, BATCH):
            if row % (ROWS // 3) == 0:
                save(model, optimizer, day, row, scores)
            if is_killed and (day, row) == (5, ROWS // 2):
                os.kill(os.getpid(), signal.SIGKILL)
            batch = slice(row, row + BATCH)
            optimizer.zero_grad()
            binary_cross_entropy_with_logits(model(ids[0][batch], ids[1][batch]), labels[batch]).backward()
            optimizer.step()
        ship(model)
    return scores


def ship(model: Model) -> None:
    """Export the tables after the first day, and what has changed after each of the others; training goes on."""
    if (SERVED / "model.safetensors").exists():
        cce.delta(model, since=SERVED)
        return
    compact = copy.deepcopy(model)
    cce.finalize(compact)
    SERVED.mkdir(exist_ok=True)
    for name in ("first.safetensors", "model.safetensors"):  # a service begins with the former
        write_bundle(SERVED / name, cce.freeze(compact))


def save(
    model: Model, optimizer: torch.optim.Optimizer, day: int, row: int, scores: list[tuple[float, float, int, int]]
) -> None:
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "day": day, "row": row, "scores": scores}
    torch.save(state, STATE.with_suffix(".part"))
    os.replace(STATE.with_suffix(".part"), STATE)  # whole or not at all


def main() -> None:
    STATE.unlink(missing_ok=True)
    shutil.rmtree(SERVED, ignore_errors=True)
    killed = subprocess.run([sys.executable, __file__, KILLED], check=False)
    print(f"the first process was killed on day six, by signal {-killed.returncode}")
    scores = train_days(is_killed=False)
    print("day  BCE before training on it  best possible  users with rows   bytes")
    for day, (bce, oracle, num_rows, nbytes) in enumerate(scores, start=1):
        print(f"{day:3}  {bce:25.4f}  {oracle:13.4f}  {num_rows:15,}  {nbytes:6,}")
    service, deltas = numpy_reader.open_bundle(SERVED / "first.safetensors"), sorted(SERVED.glob("delta-*"))
    for path in deltas:
        cce.apply_delta(service, path)
    last, ids = numpy_reader.open_bundle(SERVED / "model.safetensors"), cce.hash_ids(read_day(NUM_DAYS - 1)[0])
    is_equal = (service["users"].vectors(ids) == last["users"].vectors(ids)).all()
    nbytes = sum(path.stat().st_size for path in deltas)
    print(f"{len(deltas)} deltas of {nbytes:,} bytes; a service that applied them has the last vectors: {is_equal}")


if __name__ == "__main__":
    if KILLED in sys.argv:
        train_days(is_killed=True)
    else:
        main()
