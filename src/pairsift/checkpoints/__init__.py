"""Published checkpoints, read without running them."""
