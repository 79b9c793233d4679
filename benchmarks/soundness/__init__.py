"""Attempts to break every bound and every certificate, with zero tolerance: `make soundness`."""
