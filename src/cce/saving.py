"""`save` and `load`: any model with tables of ours in one safetensors file, which says what its tables are.

The file holds `state_dict`, each tensor once. Its metadata has the format, a version, a checksum of all the rest, and
of each table the method, the arguments of its constructor and its names in the model, so that a model as it was before
`compress` gets the same tables. Nothing is pickled.
"""

import hashlib
import json
import operator
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from cce.checks import arguments_of, check_type
from cce.clustering import ClusterSettings
from cce.distributed import current_ranks, sum_over_ranks
from cce.embeddings import METHODS, Embedding, EmbeddingBag, model_state, sharded_tables
from cce.files import replace_file, usual_permissions
from cce.version import __version__

FORMAT, VERSION = "cce-model", 1
CHECKSUM = "sha256"  # of the tensors, their names and the other metadata
NOT_SAVED = ("generator", "counts", "shard")  # arguments of the start alone
BAG_OPTIONS = ("mode", "include_last_offset", "padding_idx")


def save(model: nn.Module, path: Path | str) -> None:
    """Write a model to a file, whole or not at all.

    With sharded tables all ranks must call it: rank 0 writes one file, of tables that are not sharded.
    """
    check_type("model", model, nn.Module, "a torch.nn.Module")
    if not sharded_tables(model):
        _write(model, path, model.state_dict())
        return
    ranks, state = current_ranks(), model_state(model)
    try:
        if ranks.is_main:
            _write(model, path, state)
    finally:
        sum_over_ranks(torch.zeros(1), ranks)  # the file is there when any rank goes on


def _write(model: nn.Module, path: Path | str, state: Mapping[str, Tensor]) -> None:
    tensors, aliases = _distinct(state)
    described = {"tables": [asdict(entry) for entry in _describe(model)], "aliases": aliases}
    metadata = {"format": FORMAT, "version": str(VERSION), "cce": __version__, "model": json.dumps(described)}
    metadata[CHECKSUM] = _checksum(tensors, metadata)
    try:
        with replace_file(Path(path)) as temporary, usual_permissions(temporary):
            save_file(tensors, temporary, metadata)
    except SafetensorError as error:
        raise OSError(f"{path} could not be written: {error}.") from error


def load(path: Path | str, *, into: nn.Module) -> nn.Module:
    """Load what `save` wrote into a model of the same code, compressed or not, and return it.

    Tables that the file describes replace those of `into`, which must have the same vocabularies and dimensions.
    Nothing is changed if the file does not fit. Make the optimizer after this call, not before.
    """
    check_type("into", into, nn.Module, "a torch.nn.Module")
    where = Path(path)
    tensors, entries = _read(where)
    new = [_replacements(into, entry, tensors, where) for entry in entries]
    _check_fit(into, tensors, [name for entry in entries for name in entry.bags], where)
    for name, module in (
        each for modules in new for each in modules.items()
    ):  # only now: nothing can go wrong any more
        into.set_submodule(name, module)
    into.load_state_dict(tensors)
    return into


# -- what a file says of tables ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Entry:
    """A table: how it is made, and by which names the model has it; each with the options of its bag, if it is one."""

    method: str
    arguments: dict[str, Any]
    dtype: str
    trainable: bool
    bags: dict[str, dict[str, Any] | None]

    def make(self, device: torch.device) -> Embedding:
        """The table, with any values."""
        arguments = {name: _unplain(name, value) for name, value in self.arguments.items()}
        generator = torch.Generator().manual_seed(0)  # of its own: that of torch is the user's
        given = arguments | {"generator": generator, "device": device, "dtype": getattr(torch, self.dtype)}
        return METHODS[self.method](**given).requires_grad_(self.trainable)


def _describe(model: nn.Module) -> list[_Entry]:
    """The tables of a model, one that several modules share once."""
    found: dict[int, tuple[Embedding, dict[str, Any]]] = {}
    inside = set()
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, EmbeddingBag):
            inside.add(f"{name}.table".removeprefix("."))
            options = {each: getattr(module, each) for each in BAG_OPTIONS}
            found.setdefault(id(module.table), (module.table, {}))[1][name] = options
        elif isinstance(module, Embedding) and name not in inside:
            found.setdefault(id(module), (module, {}))[1][name] = None
    return [_entry(table, bags) for table, bags in found.values()]


def _entry(table: Embedding, bags: dict[str, Any]) -> _Entry:
    if METHODS.get(table.method) is not type(table):
        kind, name = type(table).__name__, next(iter(bags))
        raise TypeError(
            f"tables must be of a method of cce.embeddings.list_methods() to be saved, got {kind} as {name!r}."
        )
    given = {name: _plain(name, value) for name, value in arguments_of(table).items() if name not in NOT_SAVED}
    return _Entry(
        method=table.method,
        arguments=given | {"num_embeddings": table.num_embeddings, "embedding_dim": table.embedding_dim},
        dtype=str(next(table.parameters()).dtype).removeprefix("torch."),
        trainable=any(parameter.requires_grad for parameter in table.parameters()),
        bags=bags,
    )


def _plain(name: str, value: Any) -> Any:
    """A value as JSON has it."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, list | tuple):
        return [_plain(name, each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "__index__"):  # numpy's integers
        return operator.index(value)
    raise TypeError(f"{name} must be a plain value to be saved, got {type(value).__name__}.")


def _unplain(name: str, value: Any) -> Any:
    if name == "settings" and isinstance(value, dict):
        return ClusterSettings(**value)
    return tuple(_unplain("", each) for each in value) if isinstance(value, list) else value


def _replacements(model: nn.Module, entry: _Entry, tensors: Mapping[str, Tensor], path: Path) -> dict[str, nn.Module]:
    """The modules of a table, with its values, by name; none if those that are there will do."""
    old = {name: _find_table(model, name, entry, path) for name in entry.bags}
    name, options = next(iter(entry.bags.items()))
    prefix = "".join(f"{each}." for each in (name, "" if options is None else "table") if each)
    own = {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}
    try:
        table = entry.make(next(old[name].parameters()).device)
        table.load_state_dict(own)
    except (RuntimeError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"table {name!r} of {path} must be as it is described, but is not: {reason:.300}") from error
    first, *others = (each.table if isinstance(each, EmbeddingBag) else each for each in old.values())
    is_shared = all(each is first for each in others)
    if is_shared and isinstance(first, Embedding) and _entry(first, entry.bags) == entry:
        return {}
    if "" in old:
        raise ValueError(f"into must be a table like that of {path}, {entry.method!r} with {entry.arguments}.")
    bags = {name: table if each is None else EmbeddingBag(table, **each) for name, each in entry.bags.items()}
    return {name: bag.train(old[name].training) for name, bag in bags.items()}


def _find_table(model: nn.Module, name: str, entry: _Entry, path: Path) -> nn.Module:
    wanted = tuple(entry.arguments[each] for each in ("num_embeddings", "embedding_dim"))
    try:
        found = model.get_submodule(name)
    except AttributeError:
        raise ValueError(f"into must have a module {name!r}, as the model in {path} has; it has none.") from None
    size = tuple(getattr(found, each, None) for each in ("num_embeddings", "embedding_dim"))
    if wanted[0] is None and size[1] == wanted[1]:  # it takes any ids, whatever the table had that it was made for
        return found
    if size != wanted:
        got = " × ".join(map(str, size)) if all(size) else type(found).__name__
        ours = f"{wanted[0] or 'any ids'} × {wanted[1]}"
        raise ValueError(f"{name!r} of into must be a table of {ours}, as in {path}, got {got}.")
    return found


# -- files -------------------------------------------------------------------------------------------------------------


def _distinct(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Each tensor once, on the CPU, and the further names of those that have several."""
    tensors: dict[str, Tensor] = {}
    names: dict[Any, str] = {}
    aliases = {}
    for name, tensor in state.items():
        key = (tensor.device, tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if tensor.numel() and key in names:
            aliases[name] = names[key]
            continue
        names[key] = name
        here = tensor.detach().cpu().contiguous()
        is_view = here.numel() * here.element_size() != here.untyped_storage().nbytes()
        tensors[name] = here.view(torch.uint8).clone().view(here.dtype) if is_view and here.dim() else here
    return tensors, aliases


def _read(path: Path) -> tuple[dict[str, Tensor], list[_Entry]]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} must be a file that cce.save wrote, and there is none.")
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            _check_version(metadata, path)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is no dictionary
        if _checksum(tensors, metadata) != metadata.get(CHECKSUM):
            raise ValueError(f"{path} must be a file that cce.save wrote, and it is damaged: its checksum is another.")
        described = json.loads(metadata["model"])
        tensors |= {name: tensors[other] for name, other in described["aliases"].items()}
        entries = [_Entry(**values) for values in described["tables"]]
        for entry in entries:
            if entry.method not in METHODS:
                raise KeyError(f"no method {entry.method!r}")
        return tensors, entries
    except (SafetensorError, KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} must be a file that cce.save wrote, and it is damaged: {error}.") from error


def _checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """The SHA-256 of all tensors with their names, types and shapes, and of all metadata but the checksum."""
    values = {name: value for name, value in metadata.items() if name != CHECKSUM}
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _check_version(metadata: Mapping[str, str], path: Path) -> None:
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path} must be a file that cce.save wrote, got a safetensors file of another kind.")
    if metadata.get("version") != str(VERSION):
        made = f"made by cce {metadata.get('cce')}"
        raise ValueError(f"version of {path} must be {VERSION}, got {metadata.get('version')!r}, {made}: update cce.")


def _check_fit(model: nn.Module, tensors: Mapping[str, Tensor], tables: list[str], path: Path) -> None:
    """Reject a file whose other tensors are not those of the model, before anything is changed."""
    prefixes = tuple(f"{name}." if name else "" for name in tables)
    ours = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items() if not name.startswith(prefixes)}
    theirs = {name: tuple(tensor.shape) for name, tensor in tensors.items() if not name.startswith(prefixes)}
    for name in sorted(ours.keys() ^ theirs.keys()):
        where = "the model has and the file lacks" if name in ours else "the file has and the model lacks"
        raise ValueError(f"{path} must hold the tensors of the model, but {name!r} {where}.")
    for name, shape in ours.items():
        if theirs[name] != shape:
            raise ValueError(f"{name!r} of {path} must have the shape {shape}, got {theirs[name]}.")
