"""Losses as pure functions: one value per pair, nothing reduced."""
