"""The page of a run, and the page of runs side by side."""
