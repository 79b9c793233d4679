"""The HTTP face: paths, statuses, documents."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from warpcert.app.serve import answers, pictures, schemas
from warpcert.app.serve.jobs import BusyError, CancelledError, LateError
from warpcert.app.serve.limits import Gate
from warpcert.app.serve.requests import check_certify, check_originals, check_predict, picture_of, read
from warpcert.app.serve.server import Server, status_of
from warpcert.version import __version__

__all__ = ["build"]

FAILURES: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Failure, "description": text}
    for status, text in {
        400: "the body is not JSON or not a form",
        401: "no token, or a wrong one",
        403: "sent by another site's page",
        408: "the body came too slowly",
        413: "the body is too large",
        415: "neither JSON nor a form",
        422: "not a picture of the right size, or a value outside the limits",
        503: "busy: wait as Retry-After says",
        504: "took longer than the server allows",
    }.items()
}


def build(server: Server, token: str | None = None) -> FastAPI:
    """The application around a server; it drains the server when it is shut down."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        server.close()

    app = FastAPI(
        title="warpcert",
        version=__version__,
        description="A classifier with a guarantee: smoothed answers, and how far they are proved to be kept.",
        lifespan=lifespan,
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        separate_input_output_schemas=False,
    )
    app.add_middleware(Gate, limits=server.limits, token=token, metrics=server.metrics)
    _add_errors(app)
    _add_documents(app, server)
    _add_questions(app, server)
    _add_certify(app, server)
    return app


def _add_errors(app: FastAPI) -> None:
    """Every refusal is {"error": one sentence}."""

    @app.exception_handler(HTTPException)
    async def _(_: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def _(_: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"error": str(error.errors()[0]["msg"])}, 422)

    async def sentence(_: Request, error: Exception) -> JSONResponse:
        status, text = status_of(error)
        headers = {"Retry-After": str(error.seconds)} if isinstance(error, BusyError) else None
        return JSONResponse({"error": text}, status, headers)

    for kind in (ValueError, BusyError, LateError, CancelledError, Exception):
        app.add_exception_handler(kind, sentence)


def _add_documents(app: FastAPI, server: Server) -> None:
    html = (resources.files("warpcert") / "app" / "serve" / "page.html").read_text(encoding="utf-8")
    policy = _policy(html)

    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(html, headers=policy)

    @app.get("/healthz", summary="Whether the server answers")
    async def health() -> dict[str, str]:
        return {"status": "draining" if server.draining else "ok", "version": __version__}

    @app.get("/metrics", summary="Counts in the text format of Prometheus", response_class=PlainTextResponse)
    async def metrics() -> Response:
        return Response(server.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/v1/defence", summary="What is served: model, defence, threat, methods, limits", responses=_only(401))
    async def defence() -> dict[str, Any]:
        return _describe(server)

    @app.get("/v1/samples", summary="Bundled pictures to try", responses=_only(401))
    async def samples() -> list[dict[str, Any]]:
        return [
            {"image": base64.b64encode(pictures.to_png(x)).decode(), "label": label}
            for x, label in server.served.samples
        ]


def _add_questions(app: FastAPI, server: Server) -> None:
    served, limits, batcher = server.served, server.limits, server.batcher

    @app.post(
        "/v1/predict",
        summary="The smoothed answer, or abstain",
        responses=FAILURES | {200: {"model": schemas.PredictAnswer}},
        openapi_extra=schemas.json_or_form(schemas.Predict),
    )
    async def predict(request: Request) -> Response:
        asked, file = await read(request, schemas.Predict)
        check_predict(asked, limits)
        x = picture_of(asked, file, served)
        found = await server.answer(request, server.quick, lambda t: answers.predict(served, batcher, x, asked, t))
        return Response(json.dumps(found), media_type="application/json")

    @app.post(
        "/v1/attack",
        summary="The picture as the attacker hands it over, a PNG",
        response_class=Response,
        responses=FAILURES | {200: {"content": {"image/png": {}}, "description": "PNG"}},
        openapi_extra=schemas.json_or_form(schemas.Attack),
    )
    async def attack(request: Request) -> Response:
        asked, file = await read(request, schemas.Attack)
        t = served.threat.transform
        if len(asked.gamma) != t.dim:
            raise ValueError(f"{t.name} has {t.dim} parameter(s) in {t.unit}; got {len(asked.gamma)}")
        for value in asked.gamma:
            limits.check("gamma", value, -1000, 1000)
        x = picture_of(asked, file, served)
        png = await server.answer(request, server.quick, lambda _: answers.attack(served, x, asked.gamma))
        return Response(png, media_type="image/png")

    @app.post(
        "/v1/originals",
        summary="Which originals can lead to this picture",
        responses=FAILURES | {200: {"model": schemas.OriginalsAnswer}},
        openapi_extra=schemas.json_or_form(schemas.Originals),
    )
    async def originals(request: Request) -> Response:
        asked, file = await read(request, schemas.Originals)
        check_originals(asked, limits)
        x = picture_of(asked, file, served)
        found = await server.answer(request, server.quick, lambda _: answers.originals(served, x, asked.cells))
        return JSONResponse(found)


def _add_certify(app: FastAPI, server: Server) -> None:
    served, limits, batcher = server.served, server.limits, server.batcher
    stream = {"schema": {"type": "string"}, "example": 'event: progress\ndata: {"seconds": 1.2, "samples": 512}\n\n'}

    @app.post(
        "/v1/certify",
        summary="How far the answer about this picture is kept; with Accept: text/event-stream, progress on the way",
        responses=FAILURES | {200: {"model": schemas.CertifyAnswer, "content": {"text/event-stream": stream}}},
        openapi_extra=schemas.json_or_form(schemas.Certify),
    )
    async def certify(request: Request) -> Response:
        asked, file = await read(request, schemas.Certify)
        threat = check_certify(asked, served, limits)
        x = picture_of(asked, file, served)
        if "text/event-stream" in request.headers.get("accept", ""):
            token, job = server.start(lambda t: answers.certify(served, batcher, x, asked, threat, t))
            expected = None if asked.method in ("cover", "exact") else asked.n
            events = server.stream(token, job, expected)
            return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        found = await server.answer(
            request, server.slow, lambda t: answers.certify(served, batcher, x, asked, threat, t)
        )
        return Response(json.dumps(found), media_type="application/json")


def _only(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: FAILURES[status] for status in statuses}


def _policy(html: str) -> dict[str, str]:
    """The page may run its own script and style and talk to this server, nothing else."""

    def hashed(tag: str) -> str:
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.S)
        return f"'sha256-{base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'"

    rules = (
        f"default-src 'none'; script-src {hashed('script')}; style-src {hashed('style')}; "
        "connect-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return {"Content-Security-Policy": rules, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}


def _describe(server: Server) -> dict[str, Any]:
    s, limits = server.served, server.limits
    t, c = s.threat.transform, s.calibration
    return {
        "name": s.name,
        "model": s.fingerprint,
        "version": __version__,
        "shape": list(s.shape),
        "classes": list(s.classes),
        "device": s.device.type,
        "defence": s.defence.to_dict(),
        "threat": s.threat.to_dict(),
        "transform": {
            "name": t.name,
            "unit": t.unit,
            "noun": t.noun,
            "dim": t.dim,
            "gamma": [
                [t.surface(a), t.surface(b)] for a, b in zip(s.threat.box.lower, s.threat.box.upper, strict=True)
            ],
        },
        "methods": list(s.methods),
        "calibration": {"E": c.E, "rho": c.rho, "q_E": c.q_E, "digest": c.digest} if c else None,
        "limits": {k: v for k, v in vars(limits).items() if v is not None},
        "samples": len(s.samples),
    }
