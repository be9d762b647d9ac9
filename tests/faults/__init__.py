"""Faults injected on purpose, over real encoded media: what the detectors are measured by."""
