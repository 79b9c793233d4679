"""Answers that travel alone: one sealed JSON object with a picture's digest and a prediction or a certificate."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from warpcert import certificates
from warpcert import statistics as stats
from warpcert.certificates import Certificate, Subject
from warpcert.certificates.sealed import parsed, picture_digest, seal, unseal
from warpcert.certificates.verify import exists
from warpcert.classifier import Classifier, Smoothed
from warpcert.classifier.votes.early import settled
from warpcert.classifier.votes.voting import ABSTAIN
from warpcert.methods.base import subject
from warpcert.version import __version__

__all__ = ["RULES", "predicted", "sealed_answer", "verify_file"]

LEADING = 5  # logits that the record of a deterministic answer keeps
Record = dict[str, Any]


def predicted(classifier: Classifier, x: Tensor, *, n: int = 1000, alpha: float = 0.001, early: bool = False) -> Record:
    """The deployed answer about x [C,H,W], with what is needed to redo its arithmetic, as JSON types.

    A smoothed classifier votes, with fresh draws; n, alpha and early are as those of `Smoothed.vote`. Others answer
    with the class of the largest logit, and use none of them.
    """
    about = {"classifier": asdict(subject(classifier)), "version": __version__}
    if not isinstance(classifier, Smoothed):
        return _deterministic(classifier, x) | about
    answer = classifier.vote(x, n=n, alpha=alpha, early=early)
    votes: Record = {"label": answer.label, "counts": list(answer.counts), "alpha": answer.alpha}
    if (inner := classifier.inner) is not None:
        return votes | {"rule": "nested", "n": n, "alpha_inner": inner.alpha} | about
    return votes | {"rule": "anytime" if early else "fixed"} | about


@torch.no_grad()
def _deterministic(classifier: Classifier, x: Tensor) -> Record:
    """What `predict` answers, with the logits that lead to it."""
    logits = classifier(x[None])
    (label,), values = logits.argmax(1).tolist(), logits[0].tolist()
    order = sorted(range(len(values)), key=lambda c: (-values[c], c != label))[:LEADING]
    return {"label": label, "rule": "deterministic", "classes": len(values), "logits": [[c, values[c]] for c in order]}


def sealed_answer(x: Tensor, *, prediction: Record | None = None, certificate: Certificate | None = None) -> Record:
    """The answer about picture x, as JSON types."""
    body = {
        "picture": picture_digest(x),
        "prediction": prediction,
        "certificate": certificate.to_dict() if certificate else None,
    }
    return seal(json.loads(json.dumps(body)))


def verify_file(path: Path) -> list[str]:
    """What is wrong with a file that holds one answer or one certificate; the arithmetic is redone from its counts."""
    try:
        found = parsed(path.read_text(encoding="utf-8"))
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


def _check_answer(body: Record) -> None:
    if set(body) != {"picture", "prediction", "certificate"}:
        raise ValueError("an answer holds picture, prediction and certificate, and nothing else")
    if not (body["prediction"] or body["certificate"]):
        raise ValueError("the answer holds neither a prediction nor a certificate")
    certificate = certificates.read(body["certificate"]) if body["certificate"] else None
    if certificate and certificate.picture != body["picture"]:
        raise ValueError("the certificate and the answer are about different pictures")
    if body["prediction"]:
        _check_prediction(body["prediction"])
        if certificate and certificate.classifier.fingerprint != body["prediction"]["classifier"]["fingerprint"]:
            raise ValueError("the prediction and the certificate are of different classifiers")


def _check_prediction(p: Record) -> None:
    """A label must follow from the counts or logits by its rule; to abstain is allowed to votes: it claims nothing."""
    if p["rule"] not in RULES:
        raise ValueError(f"rule {p['rule']!r} is not one of {', '.join(RULES)}")
    fields, follows = RULES[p["rule"]]
    if set(p) != {"label", "rule", "classifier", "version", *fields}:
        raise ValueError(f"a {p['rule']} prediction holds label, classifier, version, {', '.join(fields)}")
    _check_subject(p["rule"], p["classifier"])
    if type(p["label"]) is not int:
        raise ValueError(f"label {p['label']!r} is not a whole number")
    if "counts" in p:
        stats.Ledger(p["alpha"])
        counts = p["counts"]
        if len(counts) < 2 or any(type(k) is not int or k < 0 for k in counts):
            raise ValueError(f"counts = {counts!r}: expected a whole number ≥ 0 for each class")
        if p["label"] == ABSTAIN:
            return
        if not 0 <= p["label"] < len(counts):
            raise ValueError(f"label {p['label']} is none of the {len(counts)} classes")
    if not follows(p):
        evidence = f"the counts {p['counts']} at α = {p['alpha']:g}" if "counts" in p else f"the logits {p['logits']}"
        raise ValueError(f"label {p['label']} does not follow from {evidence}")


def _check_subject(rule: str, told: Record) -> None:
    """There can be such a classifier, and the rule is one that it answers by."""
    exists(Subject(**told))
    facts = told["facts"]
    if facts["kind"] != "smoothed":
        fitting: tuple[str, ...] = ("deterministic",)
    else:
        fitting = ("nested",) if facts["nested"] else ("fixed", "anytime")
    if rule not in fitting:
        raise ValueError(f"a {facts['kind']} classifier does not answer by the rule {rule!r}")


def _fixed(p: Record) -> bool:
    return bool(stats.top_two_significant(p["counts"], p["alpha"])) and p["counts"][p["label"]] == max(p["counts"])


def _anytime(p: Record) -> bool:
    return settled(p["counts"], p["label"], p["alpha"])


def _nested(p: Record) -> bool:
    """Of n views, those whose inner answer was tested and is the label."""
    counts, label, n, inner = p["counts"], p["label"], p["n"], p["alpha_inner"]
    whole = type(n) is int and sum(counts) == counts[label] <= n and 0 <= inner < 1
    return whole and stats.acceptance_bound(counts[label], n, p["alpha"], inner) > 0.5


def _leads(p: Record) -> bool:
    """The logits of distinct classes, the largest first, and the label's at their head."""
    classes, values = [c for c, _ in p["logits"]], [v for _, v in p["logits"]]
    kept = len(classes) == len(set(classes)) == min(LEADING, p["classes"]) >= 2
    legal = all(type(c) is int and 0 <= c < p["classes"] for c in classes) and all(map(math.isfinite, values))
    return kept and legal and values == sorted(values, reverse=True) and classes[0] == p["label"]


# rule → the fields of such a record, and whether its label follows from them
RULES: dict[str, tuple[tuple[str, ...], Callable[[Record], bool]]] = {
    "fixed": (("counts", "alpha"), _fixed),
    "anytime": (("counts", "alpha"), _anytime),
    "nested": (("counts", "alpha", "n", "alpha_inner"), _nested),
    "deterministic": (("classes", "logits"), _leads),
}
