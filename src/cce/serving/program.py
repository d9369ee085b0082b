"""A frozen model as a program with named inputs, that torch.export can write down whole; and ONNX, made of that.

Inputs, by name: `dense` `(B, num_dense)` float32, if the schema has dense columns; `ids` `(B, F)` int64 if every
feature has one id a row. With multi-hot features, one input for each feature instead: `ids.NAME`, `(B)` or, for bags,
`(n)` with `offsets.NAME` `(B)`, where each bag starts. The output is `logits` `(B)`. B and every n are free.
"""

from __future__ import annotations

import io
import logging
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from cce.schema import Batch, Schema

Inputs = dict[str, Tensor]
OUTPUT = "logits"
OPSET = 20  # of ONNX; bit operations came with 18
EXAMPLE_ROWS = 3  # of the batch that is traced: neither 0 nor 1, which a tracer takes for constants


class ServedModel(nn.Module):
    """A frozen model, called with a dictionary of tensors."""

    def __init__(self, model: nn.Module, schema: Schema) -> None:
        super().__init__()
        self.model = model
        self.names = [feature.name for feature in schema.features]
        self.has_dense = bool(schema.dense)

    def forward(self, inputs: Inputs) -> Tensor:
        ids = inputs.get("ids")
        columns: Any = {name: self._column(inputs, name) for name in self.names} if ids is None else ids
        first = ids if ids is not None else inputs.get(f"offsets.{self.names[0]}", inputs[f"ids.{self.names[0]}"])
        nothing = torch.zeros(first.shape[0], device=first.device)
        dense = inputs["dense"] if self.has_dense else nothing.unsqueeze(-1)[:, :0]
        logits: Tensor = self.model(Batch(dense, columns, nothing))
        return logits

    def _column(self, inputs: Inputs, name: str) -> Tensor | tuple[Tensor, Tensor]:
        ids, offsets = inputs[f"ids.{name}"], inputs.get(f"offsets.{name}")
        return ids if offsets is None else (ids, offsets)


def make_inputs(batch: Batch, schema: Schema) -> Inputs:
    """The inputs of a batch as a program takes them."""
    inputs = {"dense": batch.dense} if schema.dense else {}
    if batch.offsets is None:
        return inputs | {"ids": batch.ids}
    size = len(batch)
    for place, feature in enumerate(schema.features):
        starts = batch.offsets[place * size : (place + 1) * size + 1]
        inputs[f"ids.{feature.name}"] = batch.ids[int(starts[0]) : int(starts[-1])]
        if feature.multi_hot:
            inputs[f"offsets.{feature.name}"] = starts[:-1] - starts[0]
    return inputs


def example_inputs(schema: Schema) -> Inputs:
    """A batch to trace a program with: every id is 0."""
    num_rows, num_features = EXAMPLE_ROWS, len(schema.features)
    inputs = {"dense": torch.zeros(num_rows, len(schema.dense))} if schema.dense else {}
    if not schema.is_multi_hot:
        return inputs | {"ids": torch.zeros(num_rows, num_features, dtype=torch.int64)}
    for place, feature in enumerate(schema.features):
        num_ids = 2 * num_rows + 1 + place if feature.multi_hot else num_rows
        inputs[f"ids.{feature.name}"] = torch.zeros(num_ids, dtype=torch.int64)
        if feature.multi_hot:
            inputs[f"offsets.{feature.name}"] = torch.arange(num_rows)
    return inputs


def trace(model: ServedModel, schema: Schema) -> ExportedProgram:
    """The model as a graph of torch's own operators, for any number of rows."""
    inputs, batch = example_inputs(schema), Dim("batch", min=0)
    bags = sorted(f"ids.{feature.name}" for feature in schema.features if feature.multi_hot)
    free = {name: Dim(f"num_ids_{index}", min=0) for index, name in enumerate(bags)}  # the others have rows
    shapes = {name: {0: free.get(name, batch)} for name in inputs}
    with quiet_tracing():
        program = torch.export.export(model.eval(), (inputs,), dynamic_shapes=(shapes,))
    for node in program.graph.nodes:  # where each came from in the code: paths of this machine, and most of the file
        for name in ("stack_trace", "nn_module_stack", "torch_fn"):
            node.meta.pop(name, None)
    return program


def write_pt2(path: Path, program: ExportedProgram) -> None:
    """Write a traced model as torch.export does, with its graph, which is wordy JSON, compressed."""
    plain = io.BytesIO()
    with quiet_tracing():
        torch.export.save(program, plain)
    with zipfile.ZipFile(plain) as archive, zipfile.ZipFile(path, "w") as smaller:
        for info in archive.infolist():
            kind = zipfile.ZIP_DEFLATED if info.filename.endswith(".json") else zipfile.ZIP_STORED
            smaller.writestr(info, archive.read(info), compress_type=kind)


def write_onnx(path: Path, program: ExportedProgram, inputs: Inputs) -> None:
    """Write a traced model; tensors beyond 2 GB go to a file beside it."""
    _import("onnxscript")
    with quiet_tracing():
        made: Any = torch.onnx.export(
            program,
            (inputs,),
            dynamo=True,
            input_names=list(inputs),
            output_names=[OUTPUT],
            opset_version=OPSET,
            verbose=False,
        )
        for node in made.model.graph.all_nodes():
            node.metadata_props.clear()  # where each came from in the code: most of a small file
        made.save(path)


def run_onnx(path: Path) -> Callable[[Inputs], Tensor]:
    """The program in a file, run by onnxruntime on the CPU."""
    onnxruntime = _import("onnxruntime")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = {each.name for each in session.get_inputs()}  # a model may ignore an input, which is then left out

    def run(inputs: Inputs) -> Tensor:
        given = {name: tensor.numpy() for name, tensor in inputs.items() if name in names}
        return torch.from_numpy(session.run([OUTPUT], given)[0])

    return run


def _import(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ValueError(f"format 'onnx' needs {name}: pip install 'clustered-embeddings[export]'.") from error


@contextmanager
def quiet_tracing() -> Iterator[None]:
    """Hold back what torch warns of its own code, and what its exporter logs about packages that it does not need."""
    logged = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"), torch.no_grad():
            yield
    finally:
        logging.disable(logged)
