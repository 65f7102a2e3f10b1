"""Checks on a machine with an NVIDIA GPU: two kernels alone, in sequence, at once."""
