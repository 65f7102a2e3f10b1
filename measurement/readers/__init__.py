"""Readers of what other tools have measured; values in SI, nothing dropped in silence.

Every reader returns what it read with `skipped`: the places it left out and why. A file
that it cannot read at all is a `ReaderError` which names file, line and column.
"""
