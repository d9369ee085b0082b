"""ONNX: a traced model written as one, and run by onnxruntime. The only file that imports either."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from cce.serving.program import OUTPUT, Inputs, quiet_tracing

OPSET = 20  # bit operations came with 18


def write_onnx(path: Path, program: ExportedProgram, inputs: Inputs) -> None:
    """Write a traced model; tensors beyond 2 GB go to a file beside it."""
    _import("onnxscript")
    with quiet_tracing(), _quiet_logging():
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
        if name == "onnxruntime":
            import onnxruntime

            return onnxruntime
        import onnxscript

        return onnxscript
    except ImportError as error:
        raise ValueError(f"format 'onnx' needs {name}: pip install 'clustered-embeddings[export]'.") from error


@contextmanager
def _quiet_logging() -> Iterator[None]:
    """Hold back what the exporter logs about packages that it does not need."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
