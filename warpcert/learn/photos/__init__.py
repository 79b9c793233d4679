"""Photographs: reading them, and going on from networks that others trained on them."""
