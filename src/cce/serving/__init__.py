"""A trained model where it is used: frozen, exported, and read without this package."""

from cce.serving.freezing import freeze, freeze_table

__all__ = ["freeze", "freeze_table"]
