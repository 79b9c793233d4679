"""What to try where nothing is certified: the one place that turns facts into advice."""

from __future__ import annotations

import math

from warpcert.classifier import Classifier
from warpcert.threat import Threat

__all__ = ["LARGE", "against_error", "against_margin", "against_pictures", "against_votes", "with_time"]

LARGE = 2.0  # an error of so many times the noise leaves hardly any vote that could be enough


def against_error(classifier: Classifier, threat: Threat, error: float) -> str:
    """Of an error, in units of the pixel noise, that is too large for it; "" if it is not."""
    if math.isinf(error):
        return "the error analysis gave no finite bound: take a smaller range, or give it more time"
    if error <= LARGE:
        return ""
    p = classifier.preprocess
    missing = [] if p.vignette != "none" else ["a vignette"]
    missing += [] if p.blur_sigma > 0 and p.blur_size > 1 else ["blur"]
    first = [f"add {' and '.join(missing)}" if missing else "blur more"] if threat.transform.interpolates else []
    ways = [*first, "smooth with more noise", "take a smaller range"]
    return f"the error is {error:.3g} times the noise: {', '.join(ways[:-1])} or {ways[-1]}"


def against_votes(p: float, needed: float, unanimous: bool) -> str:
    """Of votes whose bound p stays below what is needed."""
    short = f"the votes reach p ≥ {p:.3f}, but more than {needed:.3f} is needed"
    if unanimous:
        return f"{short}: all agree, so take more samples"
    return f"{short}: train the network under this noise, or lower the noise"


def against_margin(lead: float, needed: float) -> str:
    """Of a label that does not lead by enough."""
    short = f"the label leads by {lead:.3g}, but {needed:.3g} is needed"
    return f"{short}: train for larger margins, or take a smaller range"


def against_pictures(classifier: Classifier) -> str:
    """Of an enumeration of too many pictures."""
    fewer = "take coarser levels" if classifier.step > 1 else "put the classifier behind levels"
    return f"{fewer} or take a smaller range"


def with_time(limit: float | None) -> str:
    """Of work that the clock ended."""
    return f"the time limit of {limit or 0:g} s was reached: allow more, or take a smaller range"
