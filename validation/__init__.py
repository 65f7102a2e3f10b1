"""From signatures and measurements to verdicts."""
