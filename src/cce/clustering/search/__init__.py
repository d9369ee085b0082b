"""Exact searches for nearest centroids: the definition in plain torch, and compiled loops that equal it."""
