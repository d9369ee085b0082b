"""The lookup on the CPU, in compiled loops."""
