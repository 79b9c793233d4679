"""From an HTTP request to a checked question: body parsed, picture decoded, ranges compared with the limits."""

from __future__ import annotations

import base64
import binascii
import math
from dataclasses import replace
from typing import Any, TypeVar

import torch
from pydantic import ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from torch import Tensor

from warpcert import methods
from warpcert.app.serve.limits import Limits
from warpcert.app.serve.schemas import Attack, Certify, Originals, PictureRequest, Predict
from warpcert.app.serve.served import Served
from warpcert.learn import pictures
from warpcert.methods import Method
from warpcert.threat import Threat

__all__ = [
    "check_attack",
    "check_originals",
    "check_predict",
    "file_of",
    "from_pixels",
    "method_of",
    "picture_of",
    "read",
    "threat_of",
]

M = TypeVar("M", bound=PictureRequest)

SETTINGS = ("alpha", "n", "windows", "betas", "inverse")  # that a client may choose, where a method has them
QUICK = {"inverse": "interval"}  # unless a client or the classifier says otherwise: requests have little time
FEWEST = 32  # samples of one request


async def read(request: Request, model: type[M]) -> tuple[M, bytes | None]:
    """The request's fields, and the file if it was uploaded in a form."""
    kind = _kind(request)
    if kind == "application/json":
        return _validated(model, await request.body()), None
    if kind != "multipart/form-data":
        raise HTTPException(415, f"send application/json or multipart/form-data; got {kind or 'no content type'}")
    async with request.form(max_files=1, max_fields=16, max_part_size=4096) as form:
        upload = form.get("image")
        if not isinstance(upload, UploadFile):
            raise HTTPException(422, "the form needs a file named image")
        fields: dict[str, Any] = {k: v for k, v in form.multi_items() if k not in ("image", "gamma")}
        if "gamma" in form:
            fields["gamma"] = [part for v in form.getlist("gamma") for part in str(v).replace(",", " ").split()]
        return _validated(model, fields), await upload.read()


async def file_of(request: Request) -> bytes:
    """A picture file that is the whole body."""
    if (kind := _kind(request)) not in ("image/png", "image/jpeg"):
        raise HTTPException(415, f"send a file as image/png or image/jpeg; got {kind or 'no content type'}")
    return await request.body()


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _validated(model: type[M], given: bytes | dict[str, Any]) -> M:
    try:
        return model.model_validate_json(given) if isinstance(given, bytes) else model.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            raise HTTPException(400, f"the body is not JSON: {first['msg']}") from None
        place = ".".join(map(str, first["loc"]))
        raise HTTPException(422, f"{place}: {first['msg']}") from None


def picture_of(asked: PictureRequest, file: bytes | None, served: Served) -> Tensor:
    """The one picture that was sent, on the device; a ValueError if there is none, or more than one."""
    if sum(v is not None for v in (file, asked.image, asked.pixels)) != 1:
        raise ValueError("send one picture: image (a file, or base64) or pixels (numbers)")
    if asked.pixels is not None:
        return from_pixels(asked.pixels, served.shape).to(served.device)
    raw = _from_base64(asked.image or "") if file is None else file
    return pictures.decode(raw, served.shape).image.to(served.device)


def _from_base64(text: str) -> bytes:
    """With or without data:…;base64, before it."""
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"the image is not base64 ({error})") from None


def from_pixels(pixels: list[list[list[float]]], shape: tuple[int, ...]) -> Tensor:
    """Nested lists [C][H][W] of numbers in [0,1] as float32: the values that an 8-bit file of k/255 gives.

    Numbers may be float32 values, in full or in as few digits as tell them apart, or k/255 in float64. Others would
    become another picture than the one that was sent.
    """
    channels, height, width = shape
    rows = [row for plane in pixels for row in plane]
    if len(pixels) != channels or {len(p) for p in pixels} != {height} or {len(r) for r in rows} != {width}:
        given = [len(pixels), len(pixels[0]) if pixels else 0, len(rows[0]) if rows else 0]
        hint = "; these are rows, columns, channels" if given == [height, width, channels] else ""
        raise ValueError(f"pixels must have the shape {list(shape)}: channels, rows, columns; got {given}{hint}")
    if not all(math.isfinite(v) and 0 <= v <= 1 for row in rows for v in row):
        raise ValueError("pixels must be finite numbers in [0, 1] (divide 8-bit values by 255)")
    sent = torch.tensor(pixels, dtype=torch.float64)
    rest = sent[~pictures.held_by_float32(sent)]
    if bool((torch.from_numpy(rest.float().numpy().astype(str).astype(float)) != rest).any()):
        raise ValueError("pixels must be numbers that float32 holds, or k/255: others would be another picture")
    return sent.float()


def check_predict(asked: Predict, limits: Limits) -> None:
    if "n" not in asked.model_fields_set:  # a default is not the client's fault
        asked.n = min(asked.n, limits.n)
    limits.check("n", asked.n, FEWEST, limits.n)
    limits.check("alpha", asked.alpha, limits.alpha, 0.5)


def check_attack(asked: Attack, served: Served, limits: Limits) -> None:
    t = served.threat.transform
    if len(asked.gamma) != t.dim:
        raise ValueError(f"{t.name} has {t.dim} parameter(s) in {t.unit_name}; got {len(asked.gamma)}")
    for value in asked.gamma:
        limits.check("gamma", value, -1000, 1000)


def check_originals(asked: Originals, limits: Limits) -> None:
    limits.check("cells", asked.cells, 2, limits.cells)


def threat_of(asked: Certify, served: Served, limits: Limits) -> Threat:
    """The threat that is asked about, if it is within the limits."""
    threat, t = served.threat_of(asked.gamma), served.threat.transform
    largest = served.threat.box if limits.gamma is None else t.box(limits.gamma)
    if not (largest.contains(threat.box.lower) and largest.contains(threat.box.upper)):
        raise ValueError(f"the range {t.span(threat.box)} is beyond what this server allows, {t.span(largest)}")
    return threat


def method_of(asked: Certify, served: Served, threat: Threat, limits: Limits) -> Method:
    """The method with its settings, if it can do this and the settings are within the limits."""
    classifier = served.classifier
    kind = methods.get(asked.method or classifier.method)
    given = {name: value for name in SETTINGS if (value := getattr(asked, name)) is not None}
    for name, low, high in (
        ("n", FEWEST, limits.n), ("betas", 2, limits.n), ("windows", 1, limits.windows), ("alpha", limits.alpha, 0.5)
    ):  # fmt: skip
        if name in given:
            limits.check(name, given[name], low, high)
    own = classifier.settings if kind.name == classifier.method else {}
    usual = {k: v for k, v in QUICK.items() if k in kind.settings() and k not in own}
    method = methods.chosen(classifier, kind.name, **usual | given)
    if why := methods.refusal(method, classifier, threat):
        raise ValueError(f"{why} (this server offers {', '.join(served.methods)})")
    if "n" not in given and getattr(method, "n", 0) > limits.n:
        method = replace(method, n=limits.n)  # type: ignore[call-arg]
    return method
