"""What every table of a model holds, in parameters and in bytes."""

from collections.abc import Iterator

from torch import Tensor, nn
from torch.optim import Optimizer

from cce.checks import check_type
from cce.collection import readable_path
from cce.embeddings import Embedding, Finalizable
from cce.footprint import Footprint, Footprints

Table = Embedding | nn.Embedding | nn.EmbeddingBag


def summary(model: nn.Module, optimizer: Optimizer | None = None) -> Footprints:
    """What every table of `model` holds, `nn.Embedding` and `nn.EmbeddingBag` included; each shared table once."""
    check_type("model", model, nn.Module, "a torch.nn.Module")
    check_type("optimizer", optimizer, (Optimizer, type(None)), "a torch optimizer")
    return Footprints(
        tuple(_summarize(readable_path(name) or "(model)", table, optimizer) for name, table in _tables(model))
    )


def _tables(model: nn.Module) -> Iterator[tuple[str, Table]]:
    seen: set[int] = set()
    for name, module in model.named_modules():
        if isinstance(module, Table):
            weights = {id(parameter) for parameter in module.parameters()}
            if not weights <= seen:  # tied tables are counted once
                yield name, module
            seen |= weights


def _summarize(name: str, table: Table, optimizer: Optimizer | None) -> Footprint:
    parameters = list(table.parameters())
    num_ids = table.num_embeddings or 0
    full_params = num_ids * table.embedding_dim
    num_params, codebook_nbytes = _held(table, parameters)
    return Footprint(
        name=name,
        method=table.method if isinstance(table, Embedding) else f"nn.{type(table).__name__}",
        num_embeddings=num_ids,
        embedding_dim=table.embedding_dim,
        num_params=num_params,
        codebook_nbytes=codebook_nbytes,
        pointer_nbytes=table.pointer_nbytes if isinstance(table, Embedding) else 0,
        gradient_nbytes=_gradient_nbytes(table, parameters),
        optimizer_nbytes=_state_nbytes(parameters, optimizer),
        full_params=full_params,
        full_nbytes=full_params * parameters[0].element_size(),
    )


def gradient_nbytes(table: nn.Module, *, sparse: bool) -> int:
    """Bytes of a table's gradients in training: as many as its parameters have; of sparse ones, what is there now."""
    assert isinstance(table, Table)
    parameters = list(table.parameters())
    if sparse or isinstance(table, Finalizable):
        return _gradient_nbytes(table, parameters)
    return sum(parameter.nbytes for parameter in parameters if parameter.requires_grad)


def _held(table: Table, parameters: list[nn.Parameter]) -> tuple[int, int]:
    """Parameters, and their bytes; codes are parameters that torch does not know of."""
    if isinstance(table, Embedding):
        return table.num_params, table.codebook_nbytes
    return sum(parameter.numel() for parameter in parameters), sum(parameter.nbytes for parameter in parameters)


def _gradient_nbytes(table: Table, parameters: list[nn.Parameter]) -> int:
    """Bytes of the gradients that are there now, those of int8 rows included."""
    pending = table.rows.pending if isinstance(table, Finalizable) else None
    waiting = 0 if pending is None else pending.nbytes
    return waiting + sum(_nbytes(parameter.grad) for parameter in parameters if parameter.grad is not None)


def _state_nbytes(parameters: list[nn.Parameter], optimizer: Optimizer | None) -> int:
    if optimizer is None:
        return 0
    states = (value for parameter in parameters for value in optimizer.state.get(parameter, {}).values())
    return sum(_nbytes(value) for value in states if isinstance(value, Tensor))


def _nbytes(tensor: Tensor) -> int:
    """Bytes of a tensor; of a sparse one, of its indices and values."""
    if not tensor.is_sparse:
        return tensor.nbytes
    return tensor._indices().nbytes + tensor._values().nbytes
