"""A trained run, ready to be used: `load_run`; `train`, `evaluate`, `predict` as verbs do; `pack_run`; its history."""

import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from cce.checks import check_range, check_type
from cce.data import PreparedData, Vocabulary
from cce.distributed import Ranks
from cce.files import check_target
from cce.records import RunRecord
from cce.run_folder import CHECKPOINTS, RunFolder
from cce.runs.evaluating import BATCH_SIZE, Evaluation, predict_batches, score_batches
from cce.runs.pack import MODEL, RECORD, DataReference, Pack, RunInputs, write_pack
from cce.runs.vectors import FeatureVectors, recommend, similar
from cce.schema import Batch, Schema
from cce.training import kept_random_state, load_model, open_checkpoint, read_schema

Lines = list[dict[str, Any]]


@dataclass(frozen=True)
class LoadedRun:
    """A trained run; `load_run` makes it.

    path: of its checkpoint or its pack. model: as it was at the best validation, in evaluation mode.
    options: those of the training run, by name, with everything decided.
    scores: of the test rows, if the run is finished. damage: better checkpoints that were passed over, and why.
    """

    path: Path
    step: int
    model: nn.Module = field(repr=False)
    options: dict[str, Any] = field(repr=False)
    schema: Schema
    scores: dict[str, float]
    source: Pack | DataReference = field(repr=False)  # of what raw rows need
    damage: tuple[str, ...] = ()

    @cached_property
    def inputs(self) -> RunInputs:
        """How raw rows become inputs: read from the pack, or from the data set of the run."""
        return self.source.inputs(self.schema)

    @property
    def has_raw_values(self) -> bool:
        """Whether its data set was made of raw values, and not synthetic."""
        return self.source.has_inputs

    @property
    def vocabularies(self) -> dict[str, Vocabulary]:
        """The values of each feature, by its name; memory-mapped."""
        return self.inputs.vocabularies

    def predict(self, rows: Any, **options: Any) -> np.ndarray:
        """The probabilities of raw rows, or of a split of a prepared data set, float32, in their order.

        options: see `predict_blocks`.
        """
        blocks = list(self.predict_blocks(rows, **options))
        return np.concatenate(blocks) if blocks else np.zeros(0, np.float32)

    def predict_blocks(
        self, rows: Any, *, split: str | None = None, batch_size: int = BATCH_SIZE, progress: bool = False
    ) -> Iterator[np.ndarray]:
        """The same, batch by batch: in memory that does not grow with the rows.

        rows: a pandas or polars frame, a pyarrow table, a list of dictionaries, or the path of a CSV, TSV or
            Parquet file. They need no label. Values that training did not see, and missing ones, are treated as
            there.
        split: of the folder of a data set, by default "test".
        """
        _, batches = self._batches(rows, split, batch_size, is_scored=False)
        return predict_batches(self.model, batches, progress=progress)

    def evaluate(
        self, data: Any, *, split: str | None = None, metrics: Sequence[str] | None = None, batch_size: int = BATCH_SIZE
    ) -> Evaluation:
        """The scores of a split of a prepared data set, or of raw rows with labels, of any kind that `predict` takes.

        split: of a data set, by default "test". metrics: those of the run, unless they are given.
        """
        name, batches = self._batches(data, split, batch_size, is_scored=True)
        return score_batches(self, batches, metrics, name=name)

    def _batches(
        self, rows: Any, split: str | None, batch_size: int, *, is_scored: bool
    ) -> tuple[str, Iterable[Batch]]:
        """What the rows are called, and their batches, in order."""
        check_range("batch_size", batch_size, 1, 2**31)
        is_path = isinstance(rows, str | Path)
        if is_path and not Path(rows).exists():
            raise FileNotFoundError(f"data must be the folder of a data set or a file of raw rows, got {str(rows)!r}.")
        if not (is_path and Path(rows).is_dir()):
            if split is not None:
                raise ValueError(f"split goes with the folder of a data set, got {split!r} with raw rows.")
            encoder = self.inputs.encoder(self.schema, has_labels=is_scored)
            return str(rows) if is_path else "rows", encoder.batches(rows, batch_size=batch_size)
        data, split = PreparedData.open(rows), split or "test"
        if data.schema != self.schema:
            rule = "must have the columns and ids that the model was trained on"
            raise ValueError(f"data {rule}, but {data.path} has others.")
        if not data.num_rows(split):
            raise ValueError(f"split must have rows, got {split!r} with none.")
        return split, data.loader(split, batch_size=batch_size, shuffle=False)

    def recommend(
        self, user: Any, n: int = 10, *, item: str | None = None, unseen: str = "shared"
    ) -> list[tuple[str, float]]:
        """The `n` items with the highest probability for a user, with their probabilities, the best first.

        user: the raw value of the other feature, or a dictionary with raw values of the other columns of a row; what
            it leaves out is missing.
        item: the feature that is recommended; the second one, if the run has two.
        unseen: the vector of a value that training did not see: "shared", that of id 0, or "average", the mean of the
            feature's vectors.
        """
        return recommend(self, user, n, item=item, unseen=unseen)

    def similar(self, value: Any, n: int = 10, *, feature: str, unseen: str = "shared") -> list[tuple[str, float]]:
        """The `n` values of a feature whose vectors are nearest to that of a raw value, with their cosines.

        unseen: what a value gets that training did not see: "shared" rejects it, "average" takes the mean of the
            feature's vectors.
        """
        return similar(self, feature, [value], n, unseen=unseen)[0]

    def vectors(self, feature: str) -> FeatureVectors:
        return FeatureVectors(self.model, self.schema, feature)


def load_run(
    path: Path | str, *, data: Path | str | None = None, device: str = "cpu", model: str | None = None
) -> LoadedRun:
    """Load the run in a folder, at its best checkpoint; or a checkpoint itself; or a pack.

    data: the data set of the run, if it is not where it was; raw rows need its vocabularies.
    model: the model again, as FILE.py:NAME, if it is your own. No other code is run.
    """
    check_type("path", path, (str, Path), "the path of a run")
    where, pack, damage = Path(path), None, list[str]()
    if where.is_file():
        pack = Pack.open(where)
        checkpoint = pack.checkpoint()
    else:
        checkpoint, damage = open_checkpoint(where, best=True)
    for line in damage:
        warnings.warn(line, stacklevel=2)
    with kept_random_state():
        options, made = load_model(checkpoint, model=model)
    source = pack or DataReference(run_folder(where), Path(data or options["data"]), checkpoint.get("data", str))
    return LoadedRun(
        path=checkpoint.path,
        step=checkpoint.step,
        model=made.to(Ranks().device(device)).eval(),
        options=options,
        schema=read_schema(checkpoint),
        scores=source.record.scores if source.record else {},
        source=source,
        damage=tuple(damage),
    )


def run_folder(path: Path) -> RunFolder:
    """The folder of the run that a path names, or of whose checkpoints it names one."""
    return RunFolder(path.parent.parent if path.parent.name == CHECKPOINTS else path)


def train(
    data: PreparedData | Path | str, *, out: Path | str | None = None, progress: bool = True, **options: Any
) -> RunRecord:
    """Train a model on a prepared data set, and return the record of the run.

    out: the folder of the run (default: runs/DATA-METHOD).
    options: those of `TrainConfig`, such as `method="cce", model="deepfm", epochs=2`.
    """
    from cce.training import Trainer, make_config

    path = data.path if isinstance(data, PreparedData) else Path(data)
    config = make_config({"data": str(path.resolve()), **options})
    return Trainer(config, config.default_folder if out is None else out, progress=progress).run()


def evaluate(run: LoadedRun | Path | str, data: Any, **options: Any) -> Evaluation:
    """Score a trained run on a split of a prepared data set, or on raw rows with labels: see `LoadedRun.evaluate`.

    run: the folder of a run, of a checkpoint or a pack, at its best checkpoint; or what `load_run` returned.
    """
    return _loaded(run).evaluate(data, **options)


def predict(run: LoadedRun | Path | str, rows: Any, **options: Any) -> np.ndarray:
    """The probabilities of raw rows by a trained run, or of a split of a prepared data set: see `LoadedRun.predict`.

    run: the folder of a run, of a checkpoint or a pack, at its best checkpoint; or what `load_run` returned.
    """
    return _loaded(run).predict(rows, **options)


def _loaded(run: LoadedRun | Path | str) -> LoadedRun:
    return run if isinstance(run, LoadedRun) else load_run(run)


def pack_run(path: Path | str, out: Path | str, *, data: Path | str | None = None) -> Pack:
    """Write the run in a folder, at its best checkpoint, to one file that `load_run` opens anywhere.

    data: the data set of the run, if it is not where it was. A synthetic one has no vocabularies, and neither has its
        pack.
    """
    where, target = Path(path), Path(out)
    if where.is_file():
        raise ValueError(f"path must be the folder of a run, got the file {str(where)!r}.")
    check_target("out", target)
    checkpoint, damage = open_checkpoint(where, best=True)
    if damage:
        raise ValueError(f"path must be a run whose last and best checkpoints are whole: {damage[0]}")
    folder = run_folder(where)
    files = {MODEL: checkpoint.path / MODEL}
    if folder.is_finished:
        files[RECORD] = folder.record
    where_data = Path(data or checkpoint.get("config", dict)["data"])
    reference = DataReference(folder, where_data, checkpoint.get("data", str))
    with tempfile.TemporaryDirectory() as temporary:
        if reference.has_inputs:
            files |= reference.inputs(read_schema(checkpoint)).save(Path(temporary))
        write_pack(target, checkpoint, files)
    return Pack.open(target)


@dataclass(frozen=True)
class RunHistory:
    """Lines with a step each, as far as they are known."""

    curve: Lines  # validations
    losses: Lines = field(default_factory=list)
    clusterings: Lines = field(default_factory=list)
    refits: Lines = field(default_factory=list)
    record: RunRecord | None = None  # of a finished run


def read_history(run: LoadedRun) -> RunHistory:
    """How a run went; damaged lines of its log are left out. A pack has no log, so neither losses nor refits."""
    record = run.source.record
    if isinstance(run.source, Pack):
        if record is None:
            return RunHistory(run.source.manifest["state"].get("curve", []))
        return RunHistory(record.whole_curve, clusterings=record.events, record=record)
    lines, _ = run.source.folder.scan_log()

    def of(kind: str) -> Lines:
        return [line for line in lines if line["kind"] == kind]

    return RunHistory(of("validation"), of("train"), of("cluster"), of("refit"), record)
