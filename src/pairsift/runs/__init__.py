"""What a Python user calls; the command line calls the same."""
