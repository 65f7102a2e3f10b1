"""What each command of ``probcalc`` asks for, and does."""
