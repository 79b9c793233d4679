"""What the server computes for each question, in a job's thread."""

from __future__ import annotations

import base64
import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from warpcert import methods
from warpcert.app.serve.jobs import LateError, Token
from warpcert.app.serve.schemas import Predict
from warpcert.classifier import Classifier
from warpcert.learn import pictures
from warpcert.methods import Method
from warpcert.originals.interval import surviving
from warpcert.runs.answers import predicted, sealed_answer
from warpcert.threat import Threat

__all__ = ["attack", "certify", "originals", "predict"]

SHARE = 0.9  # of a request's time that a certificate may take: what is proved by then is an answer


def predict(classifier: Classifier, x: Tensor, asked: Predict) -> dict[str, Any]:
    """The deployed answer; a smoothed classifier's draws are fresh and secret."""
    record = predicted(classifier, x, n=asked.n, alpha=asked.alpha, early=asked.early)
    return sealed_answer(x, prediction=record)


def certify(classifier: Classifier, x: Tensor, method: Method, threat: Threat, token: Token) -> dict[str, Any]:
    """A certificate by the method that was asked for; its draws are fresh and secret."""
    if getattr(method, "time_limit", None) is None:
        method = replace(method, time_limit=SHARE * token.left)  # type: ignore[call-arg]
    certificate = methods.certify_with(method, classifier, x, threat)
    if not math.isfinite(certificate.error.E):
        raise LateError("the error analysis reached no finite bound in the time that this server allows")
    return sealed_answer(x, certificate=certificate)


def attack(threat: Threat, x: Tensor, gamma: list[float]) -> bytes:
    """q(T_γ x) as a PNG, by the served threat's own definition of T."""
    t = threat.transform
    parameters = torch.tensor([t.to_internal(gamma)], dtype=torch.float64, device=x.device)
    return pictures.encode(replace(threat, quantized=True).attacked(x, parameters)[0])


def originals(threat: Threat, x: Tensor, cells: int) -> dict[str, Any]:
    """Boxes of γ that are left, and the least and the largest original over all of them, rounded outwards to 8 bits.

    A picture of 8-bit values is taken for a rounded one, whatever the threat says: a file holds no other. That only
    widens what is possible.
    """
    t = threat.transform
    if torch.equal(t.quantize(x), x):
        threat = replace(threat, quantized=True)
    low, high, found = surviving(x, threat, cells)
    ranges = [
        [[t.surface(a), t.surface(b)] for a, b in zip(lo, hi, strict=True)]
        for lo, hi in zip(low.tolist(), high.tolist(), strict=True)
    ]
    answer: dict[str, Any] = {"ranges": ranges, "cells": cells**t.dim, "low": None, "high": None, "width": None}
    if ranges:
        least, most = found.low.amin(0).clamp(0, 1), found.high.amax(0).clamp(0, 1)
        answer["low"] = _text((least * 255).floor() / 255)
        answer["high"] = _text((most * 255).ceil() / 255)
        answer["width"] = float((most - least).mean())
    return answer


def _text(x: Tensor) -> str:
    return base64.b64encode(pictures.encode(x)).decode()
