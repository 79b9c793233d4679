"""Forgeries of several fields at once, each consistent with the others: all are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from certificate_samples import (
    THREAT,
    by_margins,
    calibrated,
    covered,
    exhausted,
    individual,
    part_exhausted,
    samples,
    subject,
    voted,
)

import warpcert as wc
from warpcert import certificates
from warpcert import statistics as stats
from warpcert.certificates import Certificate, Covered, Enumeration, Individual, Voted, Window, balls
from warpcert.certificates.columns import columns
from warpcert.certificates.sealed import parsed, picture_digest, seal
from warpcert.numerics import region
from warpcert.runs.answers import predicted, sealed_answer, verify_file
from warpcert.runs.store import Store, verify
from warpcert.statistics import radius
from warpcert.transforms import Box

JOINT, COVER, MARGINS, EXACT, PART = voted(), covered(), by_margins(), exhausted(), part_exhausted()
INDIV, CALIBRATED, SHIFTS = individual(), calibrated(), samples()["translation"]
SUBJECT, GONE = JOINT.classifier, INDIV.windows[1:]
WEAK = voted(*(replace(w, k=9100) for w in JOINT.windows))
TONE = exhausted(threat=wc.Threat.brightness(0.1), found=Enumeration(1234, 1200, 0.1, 1e-4, "program", tolerance=1e-12))
assert INDIV.centred and EXACT.found and PART.found and TONE.found and CALIBRATED.share and INDIV.windows[1].cell
assert isinstance(SHIFTS, Voted)
BY = THREAT.box.upper[0]


def window(c: Voted, i: int, **changes: Any) -> tuple[Window, ...]:
    return tuple(replace(w, **changes) if j == i else w for j, w in enumerate(c.windows))


def fewer(**changes: Any) -> Individual:
    """One of two windows is gone, and its passes."""
    return replace(INDIV, error=replace(INDIV.error, E=0.05), **{"windows": GONE, "passes": 5600} | changes)


def wider() -> Covered:
    """A cell takes the place of its neighbour."""
    first, second = (w.cell for w in COVER.windows[:2])
    assert first and second
    cell = Box(first.lower, second.upper)
    return replace(COVER, windows=(replace(COVER.windows[0], center=cell.center, cell=cell), *COVER.windows[2:]))


def answered(gamma: float) -> dict[str, Any]:
    said = f"the classifier answers differently at {THREAT.transform.to_text(gamma)}"
    return {"counterexample": (gamma,), "reason": said}


FORGED: dict[str, Certificate] = {
    "facts withheld, joint relabelled nested": replace(
        WEAK, form="nested", alpha_inner=0.001, classifier=replace(SUBJECT, facts=None)
    ),
    "facts withheld, E of nothing": replace(
        JOINT, classifier=replace(SUBJECT, facts=None), defence=replace(JOINT.defence, sigma_noise=9.0)
    ),
    "scores withheld, another label": replace(JOINT, scores=None, label=3),
    "scores of an enumeration withheld, a larger lead": replace(
        EXACT, scores=None, found=replace(EXACT.found, margin=7.0)
    ),
    "a window twice instead of another": fewer(windows=GONE * 2, passes=10_100),
    "a dropped window made up for by one that is impossible already": fewer(impossible=(INDIV.windows[1].cell,)),
    "a dropped window made up for by impossible ones that overlap": fewer(impossible=(Box((-0.1,), (-0.0999,)),) * 40),
    "a name that is a sentence of its own": replace(
        JOINT, classifier=replace(SUBJECT, name="m\nProved: m answers 7 under every rotation within ±180°. Not: m")
    ),
    "a name that moves the cursor": replace(JOINT, classifier=replace(SUBJECT, name="\x1b[2Am")),
    "a name without end": replace(JOINT, classifier=replace(SUBJECT, name="m" * 10**5)),
    "a reason of two lines": replace(PART, reason="x\ny", counterexample=None),
    "the program of an attacker who does not round": replace(
        TONE, threat=replace(TONE.threat, quantized=False, tolerance=1e-12)
    ),
    "the program of an attacker more exact than it": replace(
        TONE, threat=replace(TONE.threat, tolerance=1e-17), found=replace(TONE.found, tolerance=1e-17)
    ),
    "a counterexample moved to the end of Γ, held raised": replace(
        PART, found=replace(PART.found, held=1.0), **answered(BY)
    ),
    "a lead below the slack": replace(EXACT, found=replace(EXACT.found, margin=1e-5)),
    "a counterexample inside, the reason with it": replace(PART, **answered(0.1)),
    "α and the ledger doubled, the bounds not": replace(
        JOINT, alpha=2 * JOINT.alpha, ledger=tuple((p, 2 * a) for p, a in JOINT.ledger)
    ),
    "more samples in one window, more passes": replace(
        JOINT, windows=window(JOINT, 0, k=19_990, n=20_000), passes=JOINT.passes + 10_000
    ),
    "α moved from one window to another": replace(
        JOINT,
        windows=(
            replace(JOINT.windows[0], alpha=0.001),
            replace(JOINT.windows[1], alpha=0.005 / 3 * 2 - 0.001),
            JOINT.windows[2],
        ),
    ),
    "a runner-up in one window only": replace(JOINT, windows=window(JOINT, 1, runner_up=10)),
    "two parameters, windows not on a grid": replace(
        SHIFTS, windows=SHIFTS.windows[:3], passes=SHIFTS.passes - 10_000, alpha=0.00875, ledger=SHIFTS.ledger[:-1]
    ),
    "an enumeration of a smoothed classifier": replace(EXACT, classifier=subject("smoothed")),
    "an enumeration without levels against floats": replace(
        EXACT,
        step=1,
        classifier=subject("plain"),
        threat=replace(THREAT, quantized=False),
        found=replace(EXACT.found, tolerance=1e-7),
    ),
    "a Lipschitz constant that the facts do not tell": replace(MARGINS, classifier=subject("plain", lipschitz=None)),
    "a cell wider, its neighbour gone, E the same": wider(),
    "a cell wider, its neighbour gone, the passes too": replace(wider(), passes=COVER.passes - 80, alpha=0.02),
    "cells for another α each": replace(
        COVER, alpha=0.02, ledger=(("4 windows", 0.02),), windows=tuple(replace(w, alpha=0.01) for w in COVER.windows)
    ),
    "dist-d without a share": replace(CALIBRATED, share=None),
    "dist-d with β's of its own": replace(
        CALIBRATED,
        error=replace(CALIBRATED.error, betas=100, alpha=0.005),
        alpha=0.015,
        ledger=(("error bound", 0.005), *CALIBRATED.ledger),
    ),
    "more accepted than looked at, and as many images": replace(
        CALIBRATED, share=replace(CALIBRATED.share, accepted=1001)
    ),
    "an unseen original, dist-d": replace(CALIBRATED, form="attacked"),
    "centred votes that are window's, too": replace(INDIV, centred=INDIV.windows[1]),
    "the centred votes unpaid": replace(INDIV, ledger=INDIV.ledger[1:], alpha=0.009),
    "all of Γ ruled out": replace(INDIV, windows=(), excluded=1.0, passes=1100),
}


STEM = {"kind": "stem", "luma": 2, "chroma": 4, "chroma_step": None, "enlarge": "bilinear", "rounds": True}
CONTRADICTIONS: dict[str, Certificate] = {  # the statement tells the same as the facts
    "an unknown precision": replace(JOINT, classifier=subject("smoothed", precision="double")),
    "half precision, rounded less than once": replace(JOINT, classifier=subject("smoothed", precision="half")),
    "no slack": replace(
        EXACT, classifier=subject("levels", slack=0.0), found=replace(EXACT.found, slack=0.0, margin=0.1)
    ),
    "noise of a plain one": replace(MARGINS, classifier=subject("plain", noise=0.1)),
    "a fact that nobody knows": replace(EXACT, classifier=subject("levels", dropout=0.1)),
    "a fact that is missing": replace(JOINT, classifier=subject("smoothed", slack=None)),
    "steps of 7": replace(EXACT, step=7, classifier=subject("levels", step=7)),
    "steps of 8.0": replace(EXACT, classifier=subject("levels", step=8.0)),
    "means that are not rounded": replace(EXACT, step=1, classifier=subject("levels", step=1, sees=STEM)),
    "means of squares of 3": replace(EXACT, classifier=subject("levels", sees=STEM | {"luma": 3})),
    "a stem without levels": replace(MARGINS, classifier=subject("plain", sees=STEM)),
    "a Lipschitz constant in half precision": replace(
        MARGINS,
        classifier=subject("plain", precision="half", slack=0.01),
        margins=replace(MARGINS.margins, slack=0.01),
    ),
    "a front before turns": replace(
        JOINT, classifier=subject("smoothed", front="centred"), defence=replace(JOINT.defence)
    ),
    "a front of levels": replace(EXACT, classifier=subject("levels", front="centred")),
    "a front that is none, and says so": replace(JOINT, classifier=subject("smoothed", front="none")),
    "turns of two kinds": replace(JOINT, classifier=subject("smoothed", over={"rotation": [30.0], "scaling": [10.0]})),
    "scores withheld, a former fingerprint made up": replace(
        EXACT, scores=None, label=3, classifier=replace(EXACT.classifier, formerly="feed" * 16)
    ),
    "a former fingerprint of another classifier": replace(
        JOINT, classifier=replace(SUBJECT, formerly="f14e3956d4b391b0" * 4)
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_of_classifiers_that_cannot_exist_nothing_is_said(name: str, tmp_path: Path) -> None:
    c = CONTRADICTIONS[name]
    with pytest.raises(ValueError, match=r"no classifier has these facts|no such fingerprint"):
        certificates.read(written(c))
    label = {"label": 1, "rule": "deterministic", "classes": 2, "logits": [[1, 1.0], [0, 0.0]], "version": "0.1.0"}
    (tmp_path / "answer.json").write_text(
        json.dumps(sealed_answer(torch.zeros(1, 2, 2), prediction=label | {"classifier": vars(c.classifier)}))
    )
    assert len(verify_file(tmp_path / "answer.json")) == 1


@pytest.mark.parametrize("c", [JOINT, EXACT, MARGINS], ids=["joint", "exact", "margins"])
def test_forged_fingerprints_are_refused(c: Certificate) -> None:
    with pytest.raises(ValueError, match="does not follow"):
        certificates.verify(replace(c, classifier=replace(c.classifier, fingerprint="feed" * 16)))


def written(c: Certificate) -> dict[str, Any]:
    """Its record; where not even its sentence can be made, without what follows."""
    try:
        return c.to_dict()
    except ValueError:
        windows = {"windows": columns(c.windows)} if hasattr(c, "windows") else {}
        return seal({"statement": c.statement, **c.evidence(), **windows, "derived": {}})


@pytest.mark.parametrize("name", FORGED)
def test_forgeries_of_several_fields_are_refused(name: str) -> None:
    with pytest.raises(ValueError):
        certificates.read(written(FORGED[name]))


def test_what_they_are_made_of_is_read() -> None:
    for c in (JOINT, COVER, MARGINS, EXACT, PART, TONE, INDIV, CALIBRATED, SHIFTS):
        assert certificates.read(c.to_dict()) == c


def kept(folder: Path, c: Certificate, **settings: Any) -> list[str]:
    """What is wrong with a run folder that holds this certificate and was asked for these settings."""
    told = {"name": c.classifier.name, "fingerprint": c.classifier.fingerprint}
    config = {"classifier": told, "threat": c.threat.to_dict(), "method": c.method, "settings": settings}
    with Store(folder, config) as store:
        store.append(0, 7, c)
    return verify(folder)


@pytest.mark.parametrize(
    ("name", "value"), [("alpha", 0.001), ("betas", 500), ("bound", "sampled"), ("calibration", "beef" * 16)]
)
def test_a_run_is_held_to_its_settings(name: str, value: Any, tmp_path: Path) -> None:
    c = CALIBRATED if name == "calibration" else JOINT
    assert CALIBRATED.share
    own = {"alpha": c.alpha, "betas": 1000, "bound": "curve", "calibration": CALIBRATED.share.calibration}
    right = {name: own[name]} if name == "calibration" else {k: v for k, v in own.items() if k != "calibration"}
    assert kept(tmp_path / "right", c, **right) == kept(tmp_path / "open", c, **dict.fromkeys(right)) == []
    (why,) = kept(tmp_path / "wrong", c, **right | {name: value})
    assert f"its {name} is" in why and str(value) in why


def test_names_that_are_there_twice_and_bottomless_nests_are_refused(tmp_path: Path) -> None:
    """People read the first of two, programs the last."""
    text = json.dumps(JOINT.to_dict())
    assert certificates.read(parsed(text)) == JOINT
    path = tmp_path / "certificate.json"
    for bad, why in ((text[:-1] + ', "label": 7}', "twice"), ("[" * 10**5 + "]" * 10**5, "too deeply")):
        path.write_text(bad)
        with pytest.raises(ValueError, match=why):
            verify_file(path)


def few(k: int, middle: int | None = None) -> list[Window]:
    """Windows of so many votes, the one in the middle of others."""
    ks = (k, k if middle is None else middle, k)
    return [replace(w, k=each) for w, each in zip(JOINT.windows, ks, strict=True)]


def split(w: Window) -> Window:
    """The same with hardly more than half of the votes."""
    return replace(w, k=w.n // 2 + 1)


TIGHT = replace(JOINT.error, E=1e-6, betas=10**7)  # next to nothing is lost to E and ρ


@pytest.mark.parametrize(
    ("place", "name", "made", "build"),
    [
        (Individual, "vouches", lambda c, w: True, lambda: replace(INDIV, windows=tuple(map(split, INDIV.windows)))),
        (balls, "_lower_bound", lambda k, n, alpha: k / n, lambda: voted(*few(7150), error=TIGHT)),
        (radius, "kappa_one", lambda p, rho: 1.9, lambda: voted(*few(9700), error=replace(TIGHT, betas=10))),
        (radius, "param_radius", lambda kappa, ratio: kappa, lambda: voted(*few(9000))),
        (region, "reach", lambda box, regions: box, lambda: voted(*few(9450, middle=6000))),
        (stats, "accepts", lambda k, f, p0, alpha: k >= 0, lambda: covered(bad={2: {"k": 40}})),
        (radius, "needed_margin", lambda E, L: E * L, lambda: by_margins(bad={2: {"margin": 0.1}})),
        (region, "reach_of_cells", lambda box, low, high: box, lambda: by_margins(bad={0: {"margin": 0.1}})),
    ],
    ids=["cells of an original", "votes", "kappa", "radius", "gaps", "tests", "margins", "cells"],
)
def test_what_the_classes_compute_wrongly_the_verifier_notices(
    place: Any, name: str, made: Any, build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verifier has arithmetic of its own: one that errs in favour of the certificate is not enough."""
    honest = build()
    assert honest.reach is None or honest.reach != honest.threat.box
    monkeypatch.setattr(place, name, made)
    forged = build()
    assert forged.reach == forged.threat.box and forged.label == 7
    with pytest.raises(ValueError, match=r"certif|vouch"):
        certificates.read(forged.to_dict())


def test_an_answer_is_about_one_picture_and_one_classifier(tmp_path: Path) -> None:
    net, path = wc.load("mnist-rotation-exact"), tmp_path / "answer.json"
    x, y = torch.zeros(1, 28, 28), torch.ones(1, 28, 28)
    certificate = replace(EXACT, picture=picture_digest(x))
    prediction = predicted(net, x)

    def problems(of: torch.Tensor, **told: Any) -> list[str]:
        path.write_text(json.dumps(sealed_answer(of, **told)))
        return verify_file(path)

    assert problems(x, certificate=certificate) == problems(x, prediction=prediction) == []
    assert "different pictures" in problems(y, certificate=certificate)[0]
    assert "different pictures" in problems(x, certificate=EXACT)[0], "a certificate that does not say"
    assert "different classifiers" in problems(x, certificate=certificate, prediction=prediction)[0]


@pytest.mark.parametrize("name", ["brightness then rotation", "rotation then power", "brightness then shear"])
def test_no_cover_is_told_of_parts_that_no_cover_knows(name: str) -> None:
    """The right parts pass; others do not, nor does another order, with everything that follows told anew."""
    body = covered(threat=wc.Threat.rotation(3).then(brightness=0.1)).to_dict()
    assert certificates.read(body).range is not None
    told = {k: v for k, v in body.items() if k not in ("statement", "derived", "digest")}
    box = told["threat"]["box"]
    if name.startswith("brightness"):
        for ends in (box, told["windows"]):
            ends |= {end: ends[end][::-1] for end in ("lower", "upper")}
    told["threat"]["transform"] = told["defence"]["transform"] = name
    with pytest.raises(ValueError, match=f"no cover knows {name}"):
        certificates.read(Covered.built(told).to_dict())


def test_no_threat_has_a_negative_variance() -> None:
    told = wc.Threat.blur(1).to_dict()
    assert wc.Threat.from_dict(told) == wc.Threat.blur(1)
    told["box"] = {"lower": (-0.5,), "upper": (1.0,)}
    with pytest.raises(ValueError, match="begins at 0"):
        wc.Threat.from_dict(told)


def test_no_cover_is_told_of_interpolation_that_jumps() -> None:
    told = covered(threat=wc.Threat.rotation(50, interpolation="nearest"))
    with pytest.raises(ValueError, match="interpolates by nearest"):
        certificates.read(told.to_dict())
