"""What the tables of a model hold: parameters and bytes."""

from cce.diagnostics.memory import gradient_nbytes, summary
