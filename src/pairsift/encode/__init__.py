"""Frozen encoders and the feature cache: from pixels and words to arrays."""
