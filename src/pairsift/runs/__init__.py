"""Whole runs: the functions that users call in Python and that the command line calls too."""
