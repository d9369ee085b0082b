"""How a run went: its validations, losses, clusterings and refits, from its log, or what its pack holds of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cce.records import RunRecord
from cce.run_folder import RunFolder
from cce.runs.pack import RECORD, Pack

if TYPE_CHECKING:
    from cce.runs.loaded import LoadedRun

Lines = list[dict[str, Any]]
ONLY_RECORD = "a pack has no log"
NO_RECORD = "the run was not finished when it was packed, and a pack has no log"


@dataclass(frozen=True)
class RunHistory:
    """Lines with a step each. missing: why a list is not known, by its name; one that is known may be empty."""

    curve: Lines  # validations
    losses: Lines = field(default_factory=list)
    clusterings: Lines = field(default_factory=list)
    refits: Lines = field(default_factory=list)
    record: RunRecord | None = None  # of a finished run
    missing: dict[str, str] = field(default_factory=dict)


def read_history(run: LoadedRun) -> RunHistory:
    """What is known of how a run went; damaged lines of its log are left out."""
    if isinstance(run.source, Pack):
        return _packed(run.source)
    folder = RunFolder(run.source.folder)
    record = folder.read_record() if folder.is_finished else None
    lines, _ = folder.scan_log()

    def of(kind: str) -> Lines:
        return [line for line in lines if line["kind"] == kind]

    return RunHistory(of("validation"), of("train"), of("cluster"), of("refit"), record)


def _packed(pack: Pack) -> RunHistory:
    missing = {"losses": ONLY_RECORD, "refits": ONLY_RECORD}
    if RECORD not in pack.spans:
        curve = pack.manifest["state"].get("curve", [])
        return RunHistory(curve, missing=missing | {"clusterings": NO_RECORD})
    record = RunRecord.from_json(pack.read(RECORD).decode())
    return RunHistory(record.whole_curve, clusterings=record.events, record=record, missing=missing)
