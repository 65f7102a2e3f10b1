"""From NVML readings to signatures."""
