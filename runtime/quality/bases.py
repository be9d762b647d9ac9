"""Learning a checkpoint's subspaces from what it makes of calibration clips (DESIGN 5)."""
