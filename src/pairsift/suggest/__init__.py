"""What would fit instead: candidates, their probabilities, and duplicates."""
