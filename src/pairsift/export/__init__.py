"""The cleaned pairs, in every format that they came in."""
