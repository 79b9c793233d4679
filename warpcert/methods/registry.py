"""The methods by name: what Python, command line, runs, server, adapters and docs read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from warpcert.certificates import Certificate
from warpcert.certificates.sealed import picture_digest
from warpcert.classifier import Classifier
from warpcert.classifier.votes.voting import as_float32, validate_classifier, validate_image
from warpcert.errors.calibration import Calibration
from warpcert.exhaustive.parts import Part
from warpcert.methods.base import Interrupted, Method, Progress
from warpcert.methods.cover import Cover
from warpcert.methods.dist_d import DistD, Online
from warpcert.methods.dist_x import DistX
from warpcert.methods.exact import Exact
from warpcert.methods.heuristic import Base
from warpcert.methods.indiv import Indiv
from warpcert.methods.outlook.forecast import Forecast
from warpcert.threat import Threat

__all__ = [
    "METHODS",
    "certify",
    "certify_with",
    "chosen",
    "foresee",
    "get",
    "go_on",
    "part",
    "refusal",
    "refuse_other",
    "suitable",
    "threat_for",
]

METHODS: dict[str, type[Method]] = {m.name: m for m in (Exact, Cover, DistX, DistD, Online, Indiv, Base)}


def get(name: str) -> type[Method]:
    """The method of that name."""
    if name not in METHODS:
        raise ValueError(f"method {name!r} is not known; choose one of {', '.join(METHODS)}")
    return METHODS[name]


def suitable(classifier: Classifier, threat: Threat) -> list[str]:
    """The methods that can certify this classifier against this threat, with its own settings."""
    return [name for name in METHODS if not refusal(chosen(classifier, name), classifier, threat)]


def refusal(method: Method, classifier: Classifier, threat: Threat) -> str:
    """Why this method cannot certify this classifier against this threat, with the methods that know such a combination
    of parts, if it does not; "" if it can.
    """
    if why := method.beyond(threat):
        able = [name for name, kind in METHODS.items() if not kind.beyond(threat)]
        return f"{why}; {'methods that do: ' + ', '.join(able) if able else 'no method does'}"
    return method.refuses(classifier, threat)


def chosen(classifier: Classifier, method: str | None = None, **settings: Any) -> Method:
    """The method, by default the classifier's own, with the classifier's settings for it and those given here."""
    kind = get(method or classifier.method)
    if unknown := sorted(set(settings) - set(kind.settings())):
        raise ValueError(f"{kind.name} has no setting {', '.join(unknown)}; it has {', '.join(kind.settings())}")
    own = dict(classifier.settings) if kind.name == classifier.method else {}
    kept = classifier.about.notes.get("calibration")
    if "calibration" in kind.settings() and kept is not None:
        own["calibration"] = Calibration.from_dict(kept)
    return kind(**own | settings)


def threat_for(classifier: Classifier, threat: Threat | None) -> Threat:
    """The threat, or the classifier's own."""
    if found := threat or classifier.threat:
        return found
    raise ValueError("a threat is missing, for instance wc.Threat.rotation(degrees=30)")


def certify(
    classifier: Classifier, x: Tensor, threat: Threat | None = None, *, method: str | None = None, **settings: Any
) -> Certificate:
    """How far the classifier's answer about x survives the threat: `Classifier.certify` calls this.

    Ctrl-C ends exhaustive verification with a certificate of the range that is proved by then.
    """
    against = threat_for(classifier, threat)
    try:
        return certify_with(chosen(classifier, method, **settings), classifier, x, against)
    except Interrupted as stop:
        return stop.certificate


def certify_with(
    method: Method, classifier: Classifier, x: Tensor, threat: Threat, *, seed: int | None = None,
    progress: Progress | None = None,
) -> Certificate:  # fmt: skip
    """By a method whose settings are fixed; with a seed, for methods that draw."""
    if seed is not None and "seed" in method.settings():
        method = replace(method, seed=seed)  # type: ignore[call-arg]
    x = _fitting(method, classifier, x, threat)
    return _about(x, lambda: method.certify(classifier, x, threat, progress))


def go_on(
    method: Method, made: Certificate, classifier: Classifier, x: Tensor, threat: Threat,
    progress: Progress | None = None,
) -> Certificate:  # fmt: skip
    """The same, from where a certificate about x ends that was interrupted; a ValueError if it is about another."""
    x = _fitting(method, classifier, x, threat)
    refuse_other(made, (picture_digest(x), classifier.fingerprint, threat, method.name))
    return _about(x, lambda: method.go_on(made, classifier, x, threat, progress))


def refuse_other(made: Certificate, about: tuple[str, str, Threat, str]) -> None:
    """A ValueError unless it speaks of that picture (its digest), classifier (its fingerprint), threat and method."""
    if (made.picture, made.classifier.fingerprint, made.threat, made.method) != about:
        raise ValueError(
            "this certificate is about another picture, classifier or threat: there is nothing to go on from; "
            "remove it, and the picture starts anew"
        )


def part(
    method: Method, classifier: Classifier, x: Tensor, threat: Threat, share: tuple[float, float],
    progress: Progress | None = None,
) -> Part:  # fmt: skip
    """What holds on a part of Γ, by a method that proves parts."""
    x = _fitting(method, classifier, x, threat)
    digest = picture_digest(x)
    try:
        made = method.part(classifier, x, threat, share, progress)
    except Interrupted as stop:
        found = stop.part and replace(stop.part, made=replace(stop.part.made, picture=digest))
        raise Interrupted(replace(stop.certificate, picture=digest), found) from None
    return replace(made, made=replace(made.made, picture=digest))


def _about(x: Tensor, certify: Callable[[], Certificate]) -> Certificate:
    """With the digest of the picture, also where it is interrupted."""
    try:
        return replace(certify(), picture=picture_digest(x))
    except Interrupted as stop:
        raise Interrupted(replace(stop.certificate, picture=picture_digest(x))) from None


def foresee(method: Method, classifier: Classifier, x: Tensor, threat: Threat) -> Forecast:
    """What such a certificate will cost, from a probe of a few seconds."""
    return method.foresee(classifier, _fitting(method, classifier, x, threat), threat)


def _fitting(method: Method, classifier: Classifier, x: Tensor, threat: Threat) -> Tensor:
    """x in float32; a ValueError unless it is legal and the method can do this."""
    validate_image(x, threat.transform)
    validate_classifier(classifier)
    classifier.read_anew()
    if why := refusal(method, classifier, threat):
        raise ValueError(why)
    return as_float32(x)
