"""Experiments: a recipe in, records of runs out."""
