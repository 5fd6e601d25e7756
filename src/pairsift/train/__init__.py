"""The one loop: phases, batches, networks, checkpoints."""
