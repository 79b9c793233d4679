"""What a transformation is, and the families that proofs know: linear flows, shifts, tones, gradations."""
