"""What tests of the command line may ask for."""

from helpers.cli_fixtures import alone, raw_run, rejected

__all__ = ["alone", "raw_run", "rejected"]
