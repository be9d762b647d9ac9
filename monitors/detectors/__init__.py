"""Fault detectors: pure functions of numbers that others measured (S4.3)."""
