"""Methods → BibTeX entries of the papers that they come from. No torch."""

from cce.citations.entries import cite, read_citations

__all__ = ["cite", "read_citations"]
