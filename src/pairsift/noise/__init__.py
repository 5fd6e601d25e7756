"""Mismatches that are planted to measure by: captions of random or near images, edited and vague ones."""
