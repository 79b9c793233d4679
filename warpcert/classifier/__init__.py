"""What is certified and deployed."""

from __future__ import annotations

from warpcert.classifier.base import About, Classifier
from warpcert.classifier.levels import Levels
from warpcert.classifier.plain import Plain
from warpcert.classifier.smoothed import Smoothed

__all__ = ["About", "Classifier", "Levels", "Plain", "Smoothed"]
