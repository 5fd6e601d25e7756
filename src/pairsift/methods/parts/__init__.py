"""The parts that methods are made of."""
