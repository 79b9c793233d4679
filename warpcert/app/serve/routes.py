"""The HTTP face: paths, statuses, documents."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from warpcert import methods
from warpcert.app.serve import answers, asked, document, schemas
from warpcert.app.serve.jobs import BusyError, CancelledError, LateError, Token
from warpcert.app.serve.limits import Gate
from warpcert.app.serve.server import Seldom, Server, status_of
from warpcert.classifier import Smoothed
from warpcert.learn import pictures
from warpcert.transforms import SpatialTransform
from warpcert.version import __version__

__all__ = ["build"]

log = logging.getLogger("uvicorn.error")

FAILURES: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Failure, "description": text}
    for status, text in {
        400: "the body is not JSON or not a form",
        401: "no token, or a wrong one",
        403: "sent by another site's page, or under a host name that is not allowed",
        408: "the body came too slowly",
        413: "the body is too large",
        415: "neither JSON nor a form",
        422: "not a picture of the right size, or a value outside the limits",
        503: "busy: wait as Retry-After says",
        504: "took longer than the server allows",
    }.items()
}


def build(server: Server, token: str | None = None, hosts: frozenset[str] | None = None) -> FastAPI:
    """The application around a server; it drains the server when it is shut down. With hosts, it is asked by these
    names only.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        seldom = Seldom()
        log.addFilter(seldom)
        yield
        server.close()
        log.removeFilter(seldom)

    app = FastAPI(
        title="warpcert",
        version=__version__,
        description="A classifier with guarantees: its answers, and how far they are certified to hold.",
        lifespan=lifespan,
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        separate_input_output_schemas=False,
    )
    app.add_middleware(Gate, limits=server.limits, token=token, hosts=hosts, metrics=server.metrics)
    _add_errors(app)
    _add_documents(app, server)
    _add_pictures(app, server)
    _add_predict(app, server)
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

    @app.exception_handler(ClientDisconnect)
    async def _(_: Request, error: ClientDisconnect) -> Response:
        log.warning("a client went away before its request had arrived")
        return Response(status_code=499)

    async def sentence(_: Request, error: Exception) -> JSONResponse:
        status, text = status_of(error)
        headers = {"Retry-After": str(error.seconds)} if isinstance(error, BusyError) else None
        return JSONResponse({"error": text}, status, headers)

    for kind in (ValueError, BusyError, LateError, CancelledError, Exception):
        app.add_exception_handler(kind, sentence)


def _add_documents(app: FastAPI, server: Server) -> None:
    html = (resources.files("warpcert") / "app" / "serve" / "page.html").read_text(encoding="utf-8")

    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(html, headers=_policy(html))

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        shown = document.page(app.openapi())
        return HTMLResponse(shown, headers=_policy(shown))

    @app.get("/healthz", summary="Whether the server answers")
    async def health() -> dict[str, str]:
        return {"status": "draining" if server.draining else "ok", "version": __version__}

    @app.get("/metrics", summary="Counts in the text format of Prometheus", response_class=PlainTextResponse)
    async def metrics() -> Response:
        return Response(server.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/v1/classifier", summary="What is served: classifier, threat, methods, limits", responses=_only(401, 403))
    async def classifier() -> dict[str, Any]:
        return _describe(server)

    @app.get("/v1/samples", summary="Bundled pictures to try", responses=_only(401, 403))
    async def samples() -> list[dict[str, Any]]:
        return [
            {"image": base64.b64encode(pictures.encode(x)).decode(), "label": label}
            for x, label in server.served.samples
        ]


def _add_pictures(app: FastAPI, server: Server) -> None:
    served, limits = server.served, server.limits

    @app.post(
        "/v1/picture",
        summary="A picture file of any size, made to fit the classifier, and what was changed",
        responses=FAILURES | {200: {"model": schemas.Fitted}},
        openapi_extra=schemas.file_body(),
    )
    async def fit(request: Request) -> dict[str, Any]:
        raw = await asked.file_of(request)
        found = await server.answer(request, server.pictures, lambda _: pictures.fitted(raw, served.shape))
        return {"image": base64.b64encode(pictures.encode(found.image)).decode(), "notes": list(found.notes)}

    @app.post(
        "/v1/attack",
        summary="The picture as the attacker hands it over, a PNG",
        response_class=Response,
        responses=FAILURES | {200: {"content": {"image/png": {}}, "description": "PNG"}},
        openapi_extra=schemas.json_or_form(schemas.Attack),
    )
    async def attack(request: Request) -> Response:
        question, file = await asked.read(request, schemas.Attack)
        asked.check_attack(question, served, limits)
        x = asked.picture_of(question, file, served)
        png = await server.answer(request, server.quick, lambda _: answers.attack(served.threat, x, question.gamma))
        return Response(png, media_type="image/png")

    @app.post(
        "/v1/originals",
        summary="Which originals can lead to this picture",
        responses=FAILURES | {200: {"model": schemas.OriginalsAnswer}},
        openapi_extra=schemas.json_or_form(schemas.Originals),
    )
    async def originals(request: Request) -> Response:
        question, file = await asked.read(request, schemas.Originals)
        asked.check_originals(question, limits)
        x = asked.picture_of(question, file, served)
        found = await server.answer(request, server.slow, lambda _: answers.originals(served.threat, x, question.cells))
        return JSONResponse(found)


def _add_predict(app: FastAPI, server: Server) -> None:
    served, limits, batcher = server.served, server.limits, server.batcher

    @app.post(
        "/v1/predict",
        summary="The deployed answer; it may abstain",
        responses=FAILURES | {200: {"model": schemas.PredictAnswer}},
        openapi_extra=schemas.json_or_form(schemas.Predict),
    )
    async def predict(request: Request) -> Response:
        question, file = await asked.read(request, schemas.Predict)
        asked.check_predict(question, limits)
        x = asked.picture_of(question, file, served)
        found = await server.answer(
            request, server.quick, lambda token: answers.predict(batcher.classifier(token), x, question)
        )
        return Response(json.dumps(found), media_type="application/json")


def _add_certify(app: FastAPI, server: Server) -> None:
    served, limits, batcher = server.served, server.limits, server.batcher
    stream = {"schema": {"type": "string"}, "example": 'event: progress\ndata: {"seconds": 1.2, "samples": 512}\n\n'}

    @app.post(
        "/v1/certify",
        summary="How far the answer about this picture holds; with Accept: text/event-stream, progress too",
        responses=FAILURES | {200: {"model": schemas.CertifyAnswer, "content": {"text/event-stream": stream}}},
        openapi_extra=schemas.json_or_form(schemas.Certify),
    )
    async def certify(request: Request) -> Response:
        question, file = await asked.read(request, schemas.Certify)
        threat = asked.threat_of(question, served, limits)
        method = asked.method_of(question, served, threat, limits)
        x = asked.picture_of(question, file, served)

        def work(token: Token) -> dict[str, Any]:
            return answers.certify(batcher.classifier(token), x, method, threat, token)

        if "text/event-stream" in request.headers.get("accept", ""):
            token, job = server.start(server.queue_of(method), work)
            expected = getattr(method, "n", None) if served.classifier.over else None  # others stop when they know
            events = server.stream(token, job, expected)
            return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        found = await server.answer(request, server.queue_of(method), work)
        return Response(json.dumps(found), media_type="application/json")


def _only(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: FAILURES[status] for status in statuses}


def _policy(html: str) -> dict[str, str]:
    """The page may run its own script and style and talk to this server, nothing else."""

    def hashed(tag: str) -> str:
        found = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.S)
        digests = (base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode() for inside in found)
        return " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"

    rules = (
        f"default-src 'none'; script-src {hashed('script')}; style-src {hashed('style')}; "
        "connect-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return {"Content-Security-Policy": rules, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}


def _describe(server: Server) -> dict[str, Any]:
    s, limits, c = server.served, server.limits, server.served.classifier
    t, box = s.threat.transform, s.threat.box
    kept = c.about.notes.get("calibration")
    return {
        "name": c.name,
        "deploy": f"wc.Run({s.source!r}).classifier()" if Path(s.source).is_dir() else f"wc.load({s.source!r})",
        "fingerprint": c.fingerprint,
        "facts": c.facts,
        "version": __version__,
        "shape": list(s.shape),
        "classes": list(s.classes),
        "device": s.device.type,
        "votes": isinstance(c, Smoothed),
        "threat": s.threat.to_dict(),
        "transform": {
            "name": t.name,
            "unit": t.axes[0].unit,
            "unit_name": t.axes[0].unit_name,
            "noun": t.noun,
            "dim": t.dim,
            "parts": [p.name for p in t.parts],
            "dial": t.dial,
            "moves": isinstance(t, SpatialTransform),
            "range": list(zip(t.to_surface(box.lower), t.to_surface(box.upper), strict=True)),
        },
        "method": c.method,
        "methods": [
            {"name": m.name, "summary": m.summary, "attacked": m.attacked, "settings": m.settings()}
            for m in map(methods.get, s.methods)
        ],
        "calibration": {k: kept[k] for k in ("E", "rho", "q_E", "digest")} if kept else None,
        "limits": {k: v for k, v in vars(limits).items() if v is not None},
        "samples": len(s.samples),
    }
