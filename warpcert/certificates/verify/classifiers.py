"""Which classifiers a record can speak of: those that `classifier/` can build."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Any

from torch import nn

from warpcert.certificates.base import Subject
from warpcert.certificates.verify.common import refuse
from warpcert.classifier.storage import configured

__all__ = ["exists"]

# Records made before 0.1.0 tell neither scores nor tolerance. They speak of these classifiers only: the beginning of
# the SHA-256 of former and present fingerprint.
OLDER = (
    "0757677f965a4eae",  # cifar-brightness-exact
    "571c55b4d842c55b",  # cifar-rotation
    "55af86506a92afb3",  # cifar-rotation-cover
    "f580d38896ef4ed0",  # cifar-rotation-exact
    "ada7682e74121775",  # cifar-rotation-individual
    "0f4c04eca9a744b6",  # cifar-rotation-lipschitz
    "2c7084b89c24381d",  # cifar-scaling-exact
    "804296f28a022b4d",  # fashion-rotation-exact
    "9980bf54e75fe585",  # gtsrb-rotation-cover
    "580c2fc054c5de31",  # gtsrb-rotation-exact
    "6c758f8f75730c72",  # mnist-rotation
    "da485b821e352801",  # mnist-rotation-calibrated
    "339025f64e9af871",  # mnist-rotation-cover
    "d51a4e931b2118d8",  # mnist-rotation-exact
    "df8d9fdc014101f5",  # mnist-rotation-individual
    "9930006c8ddfcfc2",  # mnist-rotation-lipschitz
    "9214658038de7627",  # mnist-scaling-cover
    "e9a2ff6c41b8e4a7",  # mnist-translation-lipschitz
)


def exists(who: Subject) -> None:
    """A ValueError if its facts contradict each other, if the fingerprint does not follow from network and facts, or if
    the former one was never its own.
    """
    if who.facts is None:
        raise ValueError("the facts of the classifier are not told")
    text = json.dumps({"network": who.network, "facts": who.facts}, sort_keys=True)
    wanted = hashlib.sha256(text.encode()).hexdigest()
    refuse(who.fingerprint != wanted, "the fingerprint does not follow from network and facts")
    why = _impossible(json.dumps(who.facts, sort_keys=True))
    refuse(bool(why), f"no classifier has these facts: {why}")
    pair = hashlib.sha256(f"{who.formerly} {who.fingerprint}".encode()).hexdigest()
    refuse(bool(who.formerly) and pair[:16] not in OLDER, "this classifier had no such fingerprint before 0.1.0")


@lru_cache(64)
def _impossible(facts: str) -> str:
    """Why no classifier has these facts; "" if one that is built from them, around any network, tells the same."""
    given: dict[str, Any] = json.loads(facts)
    try:
        told = configured(nn.Identity(), given).facts
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        return str(error) or type(error).__name__
    if (again := json.dumps(told, sort_keys=True)) != facts:
        return f"it would tell {again}"
    return ""
