"""A recipe in, run records out: its runs, the tuning of their options, the sweep of them all."""
