"""`delta` and `apply_delta`: what has changed in a model that trains on, for models that are served meanwhile.

The folder of an export is what is served. A delta compares the model with it: int8 rows are encoded with the codebooks
that are served, so that ids move alone, and nothing has to be noted while training. The delta is written beside the
export, which is then replaced by that of the model as it is now. A kill leaves both, or the delta alone, which is
applied by the next call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import Tensor, nn

from cce.checks import check_type
from cce.embeddings import CCEEmbedding, Compact
from cce.files import flush, lock_folder, replace_file, usual_permissions
from cce.indexing import (
    Assignments,
    HashedRows,
    LearnedRows,
    MultiplyShift,
    OpenRowMap,
    OwnRow,
    PointerStore,
    RowMap,
    RowSource,
    unscramble,
)
from cce.kernels import Layout
from cce.serving.collection import FrozenCollection
from cce.serving.freezing import as_array, bundle_of, copy_source, freeze, frozen_tables, version_of, write_bundle
from cce.serving.frozen_tables import FrozenRows, FrozenTable, StoredRows, exchange
from cce.serving.numpy_deltas import (
    FORMAT,
    VERSION,
    Delta,
    as_stream,
    changed_table,
    changed_weights,
    checksum,
    read_delta,
    row_bits,
    rows_of,
    shape_of,
    to_gaps,
)
from cce.serving.numpy_deltas import apply_delta as apply_to_bundle
from cce.serving.numpy_reader import Array, Bundle, State, Table, Tensors, Version, below, open_bundle
from cce.signals import uninterrupted
from cce.text import format_bytes, format_table

MODEL, KNOWN = "model.safetensors", "_cce_version"
ONE_AT_A_TIME = Lock()


@dataclass(frozen=True)
class TableDelta:
    """What a delta says of one table."""

    name: str
    num_ids: int  # of which something is stored, now
    admitted: int = 0
    changed: int = 0
    evicted: int = 0
    has_new_codebook: bool = False
    lost: float | None = None  # share of the variance of vectors that the codebooks that are served lose now


@dataclass(frozen=True)
class DeltaReport:
    """A delta that was written; without a path, nothing has changed."""

    path: Path | None
    number: int
    nbytes: int
    export_nbytes: int  # of all that is served
    tables: tuple[TableDelta, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self) | {"path": None if self.path is None else str(self.path)}

    def __str__(self) -> str:
        """A table."""
        if self.path is None:
            return f"nothing has changed since delta {self.number}" if self.number else "nothing has changed"
        headers = ("table", "ids", "admitted", "changed", "evicted", "variance lost", "")
        rows = []
        for each in self.tables:
            counts = (f"{count:,}" for count in (each.num_ids, each.admitted, each.changed, each.evicted))
            lost = "" if each.lost is None else f"{each.lost:.2%}"
            is_full = each.admitted + each.changed > each.num_ids / 2
            note = "new codebook" if each.has_new_codebook else ""
            rows.append((each.name, *counts, lost, note + ": a full export" * bool(note and is_full)))
        sizes = f"{format_bytes(self.nbytes)} of {format_bytes(self.export_nbytes)}"
        return f"delta {self.number}: {sizes} in {self.path}\n\n{format_table(headers, rows)}"


@torch.no_grad()
def delta(model: nn.Module, *, since: Path | str) -> DeltaReport:
    """Write what has changed in `model` since it was exported, as the next delta of that export.

    Tables that train as int8 rows are encoded with the codebooks that are served; they stay as they are. The delta is a
    file `delta-000001.safetensors` (and so on) in the folder, whose `model.safetensors` then is the model as it is now:
    a full export. Nothing is written if nothing has changed. Of several processes, let one call it.

    since: the folder of an export in the format safetensors, or that `write_bundle` wrote `model.safetensors` to.
    """
    check_type("model", model, nn.Module, "a torch.nn.Module")
    check_type("since", since, (str, Path), "the folder of an export")
    folder = Path(since)
    if not (folder / MODEL).is_file():
        raise FileNotFoundError(f"since must be the folder of an export with {MODEL}, got {str(folder)!r}.")
    with lock_folder(folder):
        served = open_bundle(folder / MODEL)
        while (path := _delta_path(folder, served.state.version.number + 1)).exists():
            apply_to_bundle(served, path)  # a kill came before the export was replaced
        now, lost = _as_served(model, served.tables)
        tensors, text = bundle_of(now)
        specs, arrays = json.loads(text)["tables"], {name: as_array(each) for name, each in tensors.items()}
        tables, changes = _changes(served.state, specs, arrays)
        written, version = None, served.state.version
        if changes:
            written, version = path, _write_delta(path, changes, specs, version)
        if version != open_bundle(folder / MODEL).state.version:
            with replace_file(folder / MODEL) as temporary:
                write_bundle(temporary, now, version)
                flush(temporary)
    sizes = (path.stat().st_size if changes else 0), sum(each.nbytes for each in arrays.values())
    found = (replace(each, lost=lost.get(each.name)) for each in tables)
    return DeltaReport(written, version.number, *sizes, tuple(found))


def _delta_path(folder: Path, number: int) -> Path:
    return folder / f"delta-{number:06d}.safetensors"


def _write_delta(path: Path, changes: Tensors, specs: Mapping[str, Any], now: Version) -> Version:
    """Write the delta that follows this version; the one that it makes."""
    names = {name.rpartition("/")[0] for name in changes}
    metadata = {"format": FORMAT, "version": VERSION, **now.to_dict(), "number": str(now.number + 1)}
    metadata["tables"] = json.dumps({name: spec for name, spec in specs.items() if name in names})
    metadata["sha256"] = checksum(changes, metadata)
    with replace_file(path) as temporary, usual_permissions(temporary):
        save_file(changes, temporary, metadata)
        flush(temporary)
    return Version(now.model, now.number + 1, metadata["sha256"])


def _as_served(model: nn.Module, served: Mapping[str, Table]) -> tuple[nn.Module, dict[str, float]]:
    """The model frozen, with the codebooks that are served, and what these lose of the variance of int8 rows."""
    lost = {}
    with ExitStack() as forms:
        for path, table in model.named_modules():
            name = path or "table"
            if not isinstance(table, CCEEmbedding) or table.is_final or name not in served:
                continue
            if table.is_sharded:
                rule = "must have all rows in this process: `cce.save` it and load it into one"
                raise ValueError(f"table {name!r} {rule}, got a share of them.")
            spec, values = served[name].spec, torch.from_numpy(served[name].tensors["rows.values"].copy())
            if spec["groups"][0]["kind"] == "learned" and spec["embedding_dim"] == table.embedding_dim:
                codebooks = values.view(spec["columns"], -1, values.shape[1])
                compact, lost[name] = _encoded(table, codebooks)
                forms.enter_context(table.trying(compact))
        return freeze(model), lost


def _encoded(table: CCEEmbedding, codebooks: Tensor) -> tuple[Compact, float]:
    """The compact form with codebooks of an earlier fit, and the share of the variance that it loses."""
    if table.rows.num_rows == 1 and not table.rows.trains_unseen:  # all ids were evicted
        return Compact(codebooks, PointerStore(1, *codebooks.shape[:2]), 0.0), 0.0
    rows = table.trained_rows()
    compact = table.encode(rows, rows.kept(codebooks))
    return compact, compact.distortion / (rows.variance or 1.0)


def _changes(before: State, specs: Mapping[str, Any], arrays: Tensors) -> tuple[list[TableDelta], Tensors]:
    """What has changed of each table, and the tensors that say it."""
    after = {name: Table(spec, below(arrays, name), name) for name, spec in specs.items()}
    weights = below(arrays, "model")
    if before.tables.keys() != after.keys() or before.weights.keys() != weights.keys():
        ours, theirs = (", ".join(each) for each in (after, before.tables))
        raise ValueError(f"since must be an export of this model, with tables {ours}, got one with tables {theirs}.")
    tables, changes = [], {f"model/{name}": each for name, each in _differing(before.weights, weights).items()}
    for name, table in after.items():
        known, own = _table_changes(before.tables[name], table, name)
        tables.append(known)
        changes |= {f"{name}/{key}": each for key, each in own.items()}
    return tables, changes


def _differing(before: Tensors, after: Tensors) -> Tensors:
    return {name: each for name, each in after.items() if name not in before or not np.array_equal(each, before[name])}


def _table_changes(before: Table, after: Table, name: str) -> tuple[TableDelta, Tensors]:
    changes = _differing(before.tensors, after.tensors)
    if after.spec["num_embeddings"] != before.num_embeddings or after.embedding_dim != before.embedding_dim:
        raise ValueError(f"since must be an export of this model, but its table {name!r} has other ids or dimensions.")
    is_new = shape_of(before.spec) != shape_of(after.spec)
    if not (_has_rows(before) and _has_rows(after)):
        return TableDelta(name, 0, has_new_codebook=is_new), after.tensors if is_new else changes
    key, keys, rows = rows_of(after)
    _, old_keys, old_rows = rows_of(before)
    at = np.searchsorted(old_keys, keys)
    is_old = at < len(old_keys)
    is_old[is_old] = old_keys[at[is_old]] == keys[is_old]
    gone = np.ones(len(old_keys), bool)
    gone[at[is_old]] = False
    new = keys[~is_old]
    known = TableDelta(name, len(keys), len(new), int(is_old.sum()), int(gone.sum()), has_new_codebook=True)
    if is_new:
        return known, after.tensors
    differs = (old_rows[at[is_old]] != rows[is_old]).any(1)
    rest = {each: tensor for each, tensor in changes.items() if each != key and not each.startswith("map.")}
    known = replace(known, changed=int(differs.sum()), has_new_codebook="rows.values" in rest)
    if not known.admitted + known.changed + known.evicted:
        return known, rest
    given = np.concatenate([rows[is_old][differs], rows[~is_old]])
    return known, rest | {
        "delta.gone": to_gaps(np.flatnonzero(gone)),
        "delta.changed": to_gaps(at[is_old][differs]),
        "delta.ids": unscramble(torch.from_numpy(new)).numpy() if "map.keys" in after.tensors else new,
        "delta.rows": as_stream(given, row_bits(after.spec, after.tensors[key])),
    }


def _has_rows(table: Table) -> bool:
    """Whether something is stored of each id, or each with a row, by itself."""
    (kind, *others) = [group["kind"] for group in table.spec["groups"]]
    return not others and kind in ("own", "learned")


# -- frozen models -----------------------------------------------------------------------------------------------------


def apply_delta(served: nn.Module | Bundle, path: Path | str) -> None:
    """Let a frozen model, or a bundle that `numpy_reader` opened, be what the model was when a delta was written.

    A lookup of a table, or of all tables of a collection, sees the state before or that after. A delta that is damaged,
    that does not follow the one that was applied last, or that is for another model is rejected; nothing is changed.
    """
    check_type("path", path, (str, Path), "the path of a delta")
    if isinstance(served, Bundle):
        apply_to_bundle(served, path)
        return
    check_type("served", served, nn.Module, "a frozen model or an open bundle")
    tables = frozen_tables(served)
    if not tables:
        raise TypeError(f"served must be a frozen model or an open bundle, got {type(served).__name__}: freeze it.")
    with ONE_AT_A_TIME:
        found = read_delta(path, vars(served).get(KNOWN) or version_of(*bundle_of(served)))
        states: list[tuple[nn.Module, dict[str, Any]]]
        states = [(tables[name], vars(_changed(tables[name], found, name))) for name in found.specs]
        collections = [module for module in served.modules() if isinstance(module, FrozenCollection)]
        states += [(module, vars(module) | {"_lookup": None}) for module in collections]
        weights = [_weight(served, name, each) for name, each in changed_weights(found).items()]
        with uninterrupted():
            exchange(states)
            for held, name, value in weights:
                held[name] = value
            vars(served)[KNOWN] = found.version


def _weight(served: nn.Module, path: str, array: Array) -> tuple[dict[str, Any], str, Tensor]:
    """Where a weight is kept, its name there, and what it becomes."""
    owner, _, name = path.rpartition(".")
    module = served.get_submodule(owner)
    held: dict[str, Any] = module._parameters if name in module._parameters else module._buffers
    value = torch.from_numpy(array).view(held[name].dtype).to(held[name].device)
    return held, name, nn.Parameter(value, requires_grad=False) if held is module._parameters else value


def _changed(table: FrozenTable, found: Delta, name: str) -> FrozenRows:
    """A table after a delta; the one that there is stays as it was."""
    if not isinstance(table, FrozenRows):
        raise ValueError(f"table {name!r} must be made of rows for deltas of a frozen model: use an open bundle.")
    old = Table(table.spec(), {own: as_array(each) for own, each in table.tensors().items()}, name)
    new = changed_table(old, found, name)
    tensors = {own: torch.from_numpy(each) for own, each in new.tensors.items()}
    rows = StoredRows(tensors["rows.values"], tensors.get("rows.scale"))
    num_rows, width = rows.values.shape
    sizes = {"columns": new.spec["columns"], "terms": new.spec["terms"], "width": width, "num_rows": num_rows}
    layout = replace(table.layout, row_map=_map(table, tensors), **sizes)
    sources = []
    for index, group in enumerate(new.spec["groups"]):
        prefix = f"groups.{index}."
        own = {key.removeprefix(prefix): each for key, each in tensors.items() if key.startswith(prefix)}
        sources.append(_source(group, own, layout, index))
    return FrozenRows(rows, replace(layout, sources=sources)).to(table.rows.values.device).train(table.training)


def _map(table: FrozenRows, tensors: Mapping[str, Tensor]) -> RowMap | None:
    if table.map is None:
        return None
    row_map = OpenRowMap() if table.num_embeddings is None else RowMap(table.num_embeddings)
    for name in row_map.index_state:  # keys or bits
        setattr(row_map, name, tensors[f"map.{name}"])
    row_map.count()
    return row_map


def _source(group: dict[str, Any], tensors: Mapping[str, Tensor], layout: Layout, index: int) -> RowSource:
    """Where rows come from after a delta."""
    kind, slots = group["kind"], group["slots"]
    if kind == "own":
        return OwnRow(layout.num_rows)
    if kind in ("digits", "circular"):  # these never change their sizes
        new: Any = copy_source(layout.sources[index])
        if kind == "circular":
            new.hash.seeds = tensors["seeds"]
        return new  # type: ignore[no-any-return]
    if kind == "hashed":
        hashes = MultiplyShift(len(slots), group["num_rows"], generator=torch.Generator().manual_seed(0))
        hashes.seeds = tensors["seeds"]
        return HashedRows(hashes, slots, group["first_rows"])
    store = PointerStore(group["num_ids"], len(slots), group["num_rows"], bits=group["bits"])
    store.words = tensors["words"]
    return LearnedRows(Assignments.of(store), slots, group["first_rows"])
