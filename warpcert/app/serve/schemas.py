"""What clients send and get, as the OpenAPI document shows it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Attack", "Certify", "Failure", "Originals", "PictureRequest", "Predict", "json_or_form"]


class PictureRequest(BaseModel):
    """A picture: a PNG or JPEG file in base64 (`image`), or numbers (`pixels`). Just one of the two."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    image: str | None = Field(None, description="a PNG or JPEG file in base64, of just the model's size and channels")
    pixels: list[list[list[float]]] | None = Field(None, description="numbers in [0,1]: channels, rows, columns")


class Predict(PictureRequest):
    """Ask for the smoothed classifier's answer."""

    n: int = Field(1000, ge=1, description="samples, or with `early` the most that may be drawn")
    alpha: float = Field(0.001, gt=0, lt=1, description="allowed probability of a wrong answer about g")
    early: bool = Field(False, description="stop as soon as an anytime-valid test has settled the answer")


class Certify(PictureRequest):
    """Ask how far the answer about this picture, an original, is kept."""

    method: str = Field("cover", description="one of the methods that /v1/defence lists")
    gamma: list[float] | None = Field(None, min_length=1, max_length=8, description="Γ in °, px, %; 50 is ±50")
    alpha: float = Field(0.01, gt=0, lt=1, description="allowed failure probability of the whole certificate")
    n: int = Field(10_000, ge=1, description="samples; of a cover, at most per window")
    windows: int = Field(3, ge=1, description="windows per axis that share n and alpha")


class Attack(PictureRequest):
    """Ask for the picture as the attacker would hand it over."""

    gamma: list[float] = Field(min_length=1, max_length=8, description="one parameter per axis, in °, px or %")


class Originals(PictureRequest):
    """Ask which originals can lead to this picture, an attacked one."""

    cells: int = Field(40, ge=2, description="parts that Γ is cut into along an axis")


class Failure(BaseModel):
    """Why a request was not answered, in a sentence."""

    error: str


class PredictAnswer(BaseModel):
    """Sealed: save it as it came, and `warpcert check FILE` redoes its arithmetic."""

    picture: str = Field(description="sha256 of the pixels as float32")
    prediction: dict[str, Any]
    certificate: dict[str, Any] | None = Field(description="online, if the server has a calibration: g(x) = g(x')")
    plain: int = Field(description="what the base classifier says of the picture, without noise")
    digest: str


class CertifyAnswer(BaseModel):
    """Sealed: save it as it came, and `warpcert check FILE` redoes its arithmetic."""

    picture: str
    prediction: None
    certificate: dict[str, Any]
    reach: list[list[float]] | None = Field(description="the certified range, each axis as [from, to] in °, px or %")
    digest: str


class OriginalsAnswer(BaseModel):
    """If the attacker used the served threat, γ lies in one of the ranges and the original between low and high."""

    ranges: list[list[list[float]]] = Field(description="boxes of γ that are left, each axis as [from, to]")
    cells: int = Field(description="boxes that were looked at")
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
