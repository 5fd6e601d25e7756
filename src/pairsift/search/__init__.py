"""Search over the folder of a run: the index of its images and captions."""
