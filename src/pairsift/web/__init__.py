"""The local web app: the review queue of a run."""
