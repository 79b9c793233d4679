"""What clients send and get, as the OpenAPI document shows it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "Attack",
    "Certify",
    "Failure",
    "Fitted",
    "Originals",
    "PictureRequest",
    "Predict",
    "file_body",
    "json_or_form",
]


class PictureRequest(BaseModel):
    """A picture: a PNG or JPEG file in base64 (`image`), or numbers (`pixels`). Exactly one of the two."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    image: str | None = Field(None, description="a PNG or JPEG file in base64, of exactly the classifier's size")
    pixels: list[list[list[float]]] | None = Field(None, description="numbers in [0,1]: channels, rows, columns")


class Predict(PictureRequest):
    """Ask for the deployed answer. The settings are for votes: a classifier without noise does not use them."""

    n: int = Field(1000, ge=1, description="votes, or with `early` the most that may be drawn")
    alpha: float = Field(0.001, gt=0, lt=1, description="allowed probability that another class wins the votes")
    early: bool = Field(False, description="stop as soon as an anytime-valid test has settled the answer")


class Certify(PictureRequest):
    """Ask how far the answer about this picture holds. Settings left out are the classifier's or the method's own."""

    method: str | None = Field(None, description="one of the methods that /v1/classifier lists")
    gamma: list[float] | None = Field(
        None, min_length=1, max_length=8, description="the range in degrees, pixels or per cent; 50 is ±50"
    )
    alpha: float | None = Field(None, gt=0, lt=1, description="allowed failure probability of the whole certificate")
    n: int | None = Field(None, ge=1, description="samples (cover: at most, per window)")
    windows: int | None = Field(None, ge=1, description="windows per axis that share n and alpha")
    betas: int | None = Field(None, ge=2, description="parameters drawn for the error bound")
    inverse: Literal["interval", "functional", "lagrangian"] | None = Field(
        None, description="how possible originals are bounded (default: interval, the fastest)"
    )


class Attack(PictureRequest):
    """Ask for the picture as the attacker would hand it over."""

    gamma: list[float] = Field(
        min_length=1,
        max_length=8,
        description="one per axis: degrees counter-clockwise, pixels or per cent",
    )


class Originals(PictureRequest):
    """Ask which originals can lead to this picture, an attacked one."""

    cells: int = Field(40, ge=2, description="how many parts the range is cut into along each axis")


class Failure(BaseModel):
    """Why a request was not answered, in a sentence."""

    error: str


class PredictAnswer(BaseModel):
    """Sealed: save it as it came, and `warpcert check FILE` redoes its arithmetic."""

    picture: str = Field(description="SHA-256 of its shape and float32 values")
    prediction: dict[str, Any] = Field(
        description="label (−1: abstains), rule, the classifier's name and fingerprint, and votes or leading logits"
    )
    certificate: None
    digest: str


class CertifyAnswer(BaseModel):
    """Sealed: save it as it came, and `warpcert check FILE` redoes its arithmetic."""

    picture: str
    prediction: None
    certificate: dict[str, Any] = Field(description="`derived` holds its sentence, its kind and its range")
    digest: str


class Fitted(BaseModel):
    """A picture of the classifier's size, and what was done to get it."""

    image: str = Field(description="PNG in base64")
    notes: list[str] = Field(description="what was changed, in words; empty if nothing was")


class OriginalsAnswer(BaseModel):
    """If the attacker used the served threat, γ lies in one of the ranges and the original between low and high."""

    ranges: list[list[list[float]]] = Field(description="boxes of γ that remain possible, each axis as [from, to]")
    cells: int = Field(description="boxes that were examined")
    low: str | None = Field(description="PNG in base64, rounded down; null if no original is possible")
    high: str | None = Field(description="PNG in base64, rounded up")
    width: float | None = Field(description="mean of high − low over pixels")


def json_or_form(model: type[BaseModel]) -> dict[str, Any]:
    """The request body in OpenAPI: JSON, or a form with the file and the same fields."""
    schema = model.model_json_schema()
    fields = {k: v for k, v in schema["properties"].items() if k not in ("pixels", "image")}
    form = {
        "type": "object",
        "properties": {"image": {"type": "string", "format": "binary"}, **fields},
        "required": ["image", *schema.get("required", [])],
    }
    content = {"application/json": {"schema": schema}, "multipart/form-data": {"schema": form}}
    return {"requestBody": {"required": True, "content": content}}


def file_body() -> dict[str, Any]:
    """The request body in OpenAPI: a picture file as it is."""
    file = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": {"image/png": file, "image/jpeg": file}}}
