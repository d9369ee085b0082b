"""The training phase of a stream: each part is scored by the model that has not seen it, then trained on once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cce.data import InputParts, StreamLoader
from cce.diagnostics import summary
from cce.distributed import broadcast
from cce.evaluation import format_scores
from cce.text import format_bytes
from cce.training.config import STANDARD_INPUT
from cce.training.outcome import held_in_training
from cce.training.phases import TrainPhase
from cce.training.scoring import Scores, score
from cce.training.session import SCORED_ROWS, counters_line, row_counters
from cce.training.stopping import how_to_resume

if TYPE_CHECKING:
    from cce.training.trainer import Trainer

INPUT = "input"  # the folder of parts from standard input, in that of the run


class StreamPhase(TrainPhase):
    """Steps over the parts of a stream. It is saved after each part, and `validations_per_epoch` times within it."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        loader, folder = self.loader, trainer.folder.path / INPUT
        is_read = STANDARD_INPUT in loader.stream and self.session.ranks.is_main
        self.input = InputParts(folder, self.config.part_rows) if is_read else None
        loader.stream = [str(folder) if part == STANDARD_INPUT else part for part in loader.stream]

    @property
    def loader(self) -> StreamLoader:
        assert isinstance(self.session.loader, StreamLoader)
        return self.session.loader

    @property
    def is_done(self) -> bool:
        """Whether no part is left, for the time being, or enough steps are done."""
        return self._is_cut() or self._find_next() == ("", False)

    def _find_next(self) -> tuple[str, bool]:
        """The next part, or "", and whether standard input may have more, as the first process sees it."""
        found = ("", False)
        if self.session.ranks.is_main:
            found = str(self.loader.find_next() or ""), self.input is not None and not self.input.has_ended
        path, has_more = broadcast(found, self.session.ranks)
        return path, has_more

    @property
    def scores(self) -> Scores:
        """Progressive scores: their means over rows, without the first part, before which nothing was trained."""
        rows = [part["rows"] for part in self.loader.done if part["rows"]]
        counted = list(zip(rows, self.session.curve, strict=False))[1:]
        total = sum(count for count, _ in counted)
        names = self.config.metrics if total else ()
        return {name: sum(count * scores[name] for count, scores in counted) / total for name in names}

    def _is_cut(self) -> bool:
        return self.session.step >= self.config.max_steps

    def run(self) -> None:
        while not self.is_done:
            path, _ = self._find_next()
            if not path:
                self._wait()
            elif self._begin(Path(path)) and self.train_epoch():
                self.trainer.save()

    def _wait(self) -> None:
        if self.input is not None:
            done = [Path(part["path"]) for part in self.loader.done]
            self.input.make_part(done, self.trainer.stop_request)
        self.trainer.agree_to_go_on()
        self.trainer.leave_if_asked()

    def _begin(self, path: Path) -> bool:
        """Open a part and score it, or go on with the one under way; whether there are rows to train on."""
        loader, progress = self.loader, self.trainer.progress
        try:
            if note := loader.begin(path):
                return self._say(note)
            if not loader.num_rows and not self._score(path):
                return self._say(f"{path} has no rows.")
        except (ValueError, OSError) as error:
            where = self.trainer.folder
            raise type(error)(f"{error} No row of this part was trained; go on with {how_to_resume(where)}.") from error
        progress.start(loader.num_rows, path.name, first_row=loader.position)
        return True

    def _say(self, note: str) -> bool:
        self.trainer.progress.say(note)
        self.trainer.write("note", note=note)
        return False

    def _score(self, path: Path) -> int:
        """Score the part that was begun, and report; how many rows it has."""
        session, trainer, loader = self.session, self.trainer, self.loader
        trainer.guard.check_weights()
        with session.stopwatch("score"), trainer.guard.explained_logits():
            rows, ranks = loader.scored(SCORED_ROWS * session.ranks.world_size), session.ranks
            scores = score(session.model, rows, self.config.metrics, device=session.device, ranks=ranks)
            loader.count(rows)
        if not loader.num_rows:
            loader.done.append(loader.part)
            loader.part = {}
            return 0
        for note in loader.notes:
            self._say(note)
        session.curve.append({"step": session.step, "epoch": session.epoch + 1, **scores})
        held = {table.name: table.nbytes for table in summary(session.model).tables}
        parts = held_in_training(session)
        nbytes = sum(parts[name]["codes_nbytes"] or own for name, own in held.items())
        others = sum(own["gradient_nbytes"] + own["optimizer_nbytes"] for own in parts.values())
        sizes = {"rows": loader.num_rows, "nbytes": nbytes, "training_nbytes": nbytes + others}
        ids = row_counters(session.model)
        trainer.write("part", part=session.epoch + 1, path=str(path), **sizes, **scores, ids=ids)
        trainer.progress.say(
            f"part {session.epoch + 1}, {path.name}: {loader.num_rows:,} rows, scored before training: "
            f"{format_scores(scores)}; tables hold {format_bytes(nbytes)}, "
            f"in training {format_bytes(nbytes + others)}; {counters_line(ids)}"
        )
        return loader.num_rows

    def after_rows(self, num_rows: int) -> None:
        """Save, this many times in a part."""
        loader, times = self.loader, self.config.validations_per_epoch
        done, before = (at * times // loader.num_rows for at in (loader.position, loader.position - num_rows))
        if before < done < times:  # after the last row the part is saved as a whole
            self.trainer.save()
