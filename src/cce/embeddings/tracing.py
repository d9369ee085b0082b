"""`torch.fx`: a table, a bag or a collection is one node of a graph, as torch's own layers are.

The graph calls the module itself, so that it has its parameters, its index state and all that becomes of them later.
"""

from __future__ import annotations

from typing import Any, Self

from torch import nn
from torch.fx import Proxy


class TracedWhole(nn.Module):
    """A module that `torch.fx.symbolic_trace` does not look into: alone, or as a part of a model."""

    @property
    def itself(self) -> Self:
        """The module, by a name that a graph can call it by when nothing else is around it."""
        return self

    def _traced(self, ids: Any, *arguments: Any) -> Any:
        """The node that calls this module with symbolic ids."""
        tracer = ids.tracer
        path = "itself" if tracer.root is self else tracer.path_of_module(self)
        return tracer.create_proxy("call_module", path, (ids, *arguments), {})


def is_symbolic(ids: object) -> bool:
    """Whether ids stand for values that a graph will be given."""
    return isinstance(ids, Proxy)
