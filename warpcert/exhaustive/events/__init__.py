"""Where what a classifier sees changes: the paths of pixels, and every crossing of a threshold, enclosed."""
