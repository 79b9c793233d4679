"""From an HTTP request to a checked question: body parsed, picture decoded, ranges compared with the limits."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from torch import Tensor

from warpcert.app.serve import pictures
from warpcert.app.serve.limits import Limits
from warpcert.app.serve.schemas import Certify, Originals, PictureRequest, Predict
from warpcert.app.serve.served import METHODS, Served
from warpcert.threat import Threat

__all__ = ["check_certify", "check_originals", "check_predict", "picture_of", "read"]

M = TypeVar("M", bound=PictureRequest)


async def read(request: Request, model: type[M]) -> tuple[M, bytes | None]:
    """The request's fields, and the file if it was uploaded in a form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
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
    if file is not None:
        x = pictures.from_file(file, served.shape)
    elif asked.image is not None:
        x = pictures.from_base64(asked.image, served.shape)
    else:
        x = pictures.from_pixels(asked.pixels or [], served.shape)
    return x.to(served.device)


def check_predict(asked: Predict, limits: Limits) -> None:
    _check_sampling(asked, limits)


def _check_sampling(asked: Predict | Certify, limits: Limits) -> None:
    if "n" not in asked.model_fields_set:  # a default is not the client's fault
        asked.n = min(asked.n, limits.n)
    limits.check("n", asked.n, 32, limits.n)
    limits.check("alpha", asked.alpha, limits.alpha, 0.5)


def check_originals(asked: Originals, limits: Limits) -> None:
    limits.check("cells", asked.cells, 2, limits.cells)


def check_certify(asked: Certify, served: Served, limits: Limits) -> Threat:
    """The threat that is asked about, if everything is within the limits."""
    if asked.method not in served.methods:
        why = "needs a calibration.json beside the weights" if asked.method in METHODS else "is not known"
        raise ValueError(f"method {asked.method!r} {why}; this server offers {', '.join(served.methods)}")
    _check_sampling(asked, limits)
    limits.check("windows", asked.windows, 1, limits.windows)
    threat, t = served.threat_of(asked.gamma), served.threat.transform
    largest = served.threat.box if limits.gamma is None else t.box(limits.gamma)
    if not (largest.contains(threat.box.lower) and largest.contains(threat.box.upper)):
        raise ValueError(f"Γ = {t.span(threat.box)} is beyond what this server allows, {t.span(largest)}")
    if asked.method == "dist-d" and served.calibration:
        served.calibration.check_settings(served.defence, threat)
    return threat
