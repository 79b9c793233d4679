"""Answers that travel alone: one sealed JSON object with a picture's digest and a prediction or a certificate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from warpcert import certificates
from warpcert import statistics as stats
from warpcert.certificates import Certificate
from warpcert.certificates.sealed import seal, unseal
from warpcert.classifier.defence import Defence
from warpcert.classifier.early import settled
from warpcert.classifier.voting import ABSTAIN, Prediction
from warpcert.version import __version__

__all__ = ["RULES", "prediction_record", "sealed_answer", "verify_file"]

RULES = ("fixed", "anytime")


def prediction_record(p: Prediction, rule: str, defence: Defence, model: str) -> dict[str, Any]:
    """A prediction with what is needed to redo its test: `fixed` as `predict` does it, `anytime` as `predict_early`."""
    return {
        "label": p.label,
        "counts": list(p.counts),
        "alpha": p.alpha,
        "rule": rule,
        "defence": defence.to_dict(),
        "model": model,
        "version": __version__,
    }


def sealed_answer(
    picture: str, *, prediction: dict[str, Any] | None = None, certificate: Certificate | None = None, **more: Any
) -> dict[str, Any]:
    """The answer about the picture with this digest, as JSON types."""
    body = {
        "picture": picture,
        "prediction": prediction,
        "certificate": certificate.to_dict() if certificate else None,
        **more,
    }
    return seal(json.loads(json.dumps(body)))


def verify_file(path: Path) -> list[str]:
    """What is wrong with a file that holds one answer or one certificate; the arithmetic is redone from its counts."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    try:
        if not isinstance(found, dict) or not {"certificate", "statement"} & found.keys():
            raise ValueError("it is neither a certificate nor a server's answer")
        if "statement" in found:
            certificates.read(found)
        else:
            _check_answer(unseal(found))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return [f"{path.name}: {error}"]
    return []


def _check_answer(body: dict[str, Any]) -> None:
    if not (body["prediction"] or body["certificate"]):
        raise ValueError("the answer holds neither a prediction nor a certificate")
    if body["certificate"]:
        certificates.read(body["certificate"])
    if body["prediction"]:
        _check_prediction(body["prediction"])


def _check_prediction(p: dict[str, Any]) -> None:
    """A label must follow from the counts, by the test of its rule. To abstain is always allowed: it claims nothing."""
    counts, label, rule = p["counts"], p["label"], p["rule"]
    if rule not in RULES:
        raise ValueError(f"rule {rule!r} is not one of {', '.join(RULES)}")
    Defence.from_dict(p["defence"])
    if not counts or any(type(k) is not int or k < 0 for k in counts):
        raise ValueError(f"counts = {counts!r}: expected one whole number ≥ 0 per class")
    if label == ABSTAIN:
        return
    if not 0 <= label < len(counts):
        raise ValueError(f"label {label} is none of the {len(counts)} classes")
    if rule == "fixed":
        follows = stats.top_two_significant(counts, p["alpha"]) and counts[label] == max(counts)
    else:
        follows = settled(counts, label, p["alpha"])
    if not follows:
        raise ValueError(f"label {label} does not follow from the counts {counts} at α = {p['alpha']:g}")
