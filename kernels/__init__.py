"""Numerical kernels: arrays in, arrays out; no word of the domain."""
