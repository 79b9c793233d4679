"""What the server computes for each question, in a job's thread."""

from __future__ import annotations

import base64
from typing import Any

import torch
from torch import Tensor

from warpcert import methods
from warpcert.app.serve import pictures
from warpcert.app.serve.batcher import Batcher
from warpcert.app.serve.jobs import LateError, Token
from warpcert.app.serve.schemas import Certify, Predict
from warpcert.app.serve.served import METHODS, Question, Served
from warpcert.certificates import Certificate
from warpcert.classifier.early import predict_early
from warpcert.classifier.voting import logits_of
from warpcert.classifier.voting import predict as joint_predict
from warpcert.methods.run import Sampling
from warpcert.originals.interval import surviving
from warpcert.runs.answers import prediction_record, sealed_answer
from warpcert.threat import Threat

__all__ = ["attack", "certify", "originals", "predict"]


def predict(served: Served, batcher: Batcher, x: Tensor, asked: Predict, token: Token) -> dict[str, Any]:
    """The smoothed answer with its counts, the plain one, and with a calibration the online certificate (unless it
    has a reference, which is for known originals); randomness is fresh and secret.
    """
    classifier, calibration = batcher.classifier(token), served.calibration
    rule, ask = ("anytime", predict_early) if asked.early else ("fixed", joint_predict)
    answer = ask(classifier, served.defence, x, n=asked.n, alpha=asked.alpha)
    plain = int(logits_of(classifier, served.defence.preprocess(x)[None]).argmax())
    online = None
    if calibration is not None and calibration.defence.reference is None and not asked.early:
        sampling = Sampling(n=asked.n, alpha=asked.alpha)
        online = methods.dist_spt_d_online(classifier, x, calibration, sampling, model=served.fingerprint)
    record = prediction_record(answer, rule, served.defence, served.fingerprint)
    return sealed_answer(pictures.digest(x), prediction=record, certificate=online, plain=plain)


def certify(
    served: Served, batcher: Batcher, x: Tensor, asked: Certify, threat: Threat, token: Token
) -> dict[str, Any]:
    """A certificate by the method that was asked for; randomness is fresh and secret."""
    sampling = Sampling(n=asked.n, alpha=asked.alpha, windows=asked.windows)
    question = Question(served, batcher.classifier(token), x, threat, sampling, token.left)
    certificate: Certificate = METHODS[asked.method](question)
    if not torch.inf > certificate.error.E:
        raise LateError("the error analysis reached no finite bound in the time that this server allows")
    t, box = threat.transform, certificate.reach
    reach = [[t.surface(a), t.surface(b)] for a, b in zip(box.lower, box.upper, strict=True)] if box else None
    return sealed_answer(pictures.digest(x), certificate=certificate, reach=reach)


def attack(served: Served, x: Tensor, gamma: list[float]) -> bytes:
    """q(T_γ x) as a PNG, by the served threat's own definition of T."""
    t = served.threat.transform
    parameters = torch.tensor([[t.internal(g) for g in gamma]], dtype=torch.float64, device=x.device)
    return pictures.to_png(t.quantize(t(x, parameters, served.threat.interpolation)[0]))


def originals(served: Served, x: Tensor, cells: int) -> dict[str, Any]:
    """Boxes of γ that are left, and the least and the largest original over all of them, rounded outwards to 8 bits."""
    t = served.threat.transform
    low, high, found = surviving(x, served.threat, cells)
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
    return base64.b64encode(pictures.to_png(x)).decode()
