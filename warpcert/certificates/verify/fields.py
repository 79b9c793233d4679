"""Which fields of a record are not recomputed, and why."""

from __future__ import annotations

__all__ = ["FORMER", "FREE", "MEASURED"]

FREE = {  # a field, by its path in a record, and why nothing rests on it
    "classifier.name": "what people call it; the fingerprint says which it is",
    "classifier.formerly": "its fingerprint before 0.1.0: none, or the one that this classifier had",
    "picture": "which picture it is about; only the data can tell",
    "scores": "only that the largest names the label, and their sum where they are votes",
    "excluded": "the share of Γ that was ruled out; the windows hold all that is left",
    "found.margin": "the least lead; only that it is above the slack, and not above that of the picture itself",
    "defence.reference": "the kernel that turned the original, at certification only",
    "seed": "a certificate holds for any draws that were fresh",
    "version": "which version wrote it",
    "seconds": "how long it took",
    "error.seconds": "how long the analysis took",
    "error.cells": "how much work the analysis was",
    "passes": "how much work it was, where the windows leave that open",
    "reason": "why it ends or abstains, in words, which claim nothing",
    "ledger.purpose": "what α was spent on, in words; only the amounts count",
    "found.crossings": "how many there were on the way; the images count",
    "share.calibration": "names the calibration; a run keeps it, and is checked against it",
    "threat.interpolation": "where the transformation does not interpolate",
    "defence.interpolation": "where the classifier does not turn pictures",
    "windows.runner_up": "where 1 − p is the better bound; never below what the other votes leave it",
}
FORMER = {  # besides, of records that were made before 0.1.0: those keep no scores
    "label": "which label it was; only asking the classifier again can tell",
    "classes": "how many there are",
    "found.tolerance": "none was told",
}
MEASURED = {  # what only the picture and the classifier can tell
    "classifier.network": "which network it was; with the facts it gives the fingerprint",
    "classifier.facts": "what was deployed; with the network they give the fingerprint",
    "windows": "votes, errors, margins and cells, window by window",
    "centred": "votes at the picture itself",
    "impossible": "windows of which nothing was left",
    "error": "what was drawn and found; bounded by the windows",
    "share": "what the calibration counted",
    "found": "images, and their least lead",
    "counterexample": "a γ beyond the certified range",
    "alpha_inner": "the level of each inner test",
    "threat": "whom it was tested against, so far as the evidence does not depend on it",
    "margins": "the Lipschitz constant, bounded by how margins change, and the slack",
}
