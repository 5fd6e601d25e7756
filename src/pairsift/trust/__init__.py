"""How far each pair is to be believed."""
