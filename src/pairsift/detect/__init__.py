"""Which pairs do not match, from arrays alone: folds, held-out evidence and its calibration."""
