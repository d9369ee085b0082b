"""Placeholder."""
from __future__ import annotations
class FusedLookup:
    def __init__(self, tables): self.tables = tables
    def __call__(self, ids): return None
