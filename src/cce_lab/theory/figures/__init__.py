"""The paper's figures of theory, one in each module; `cce_lab.theory.FIGURES` has them by name."""
