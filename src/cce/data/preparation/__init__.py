"""Preparation of raw files to a data set. The public names are in `cce.data`; `sources` reads raw files."""
