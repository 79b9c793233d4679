"""Requests made up from the OpenAPI document: no crash, no answer that the document does not promise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import load_all_checks
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from serving import running, write_file

from warpcert.app.serve.served import open_served

GET = ("/healthz", "/metrics", "/v1/classifier", "/v1/samples")
POST = ("/v1/predict", "/v1/certify", "/v1/attack", "/v1/originals")
CASES = [(path, "GET", GenerationMode.POSITIVE) for path in GET]
CASES += [("/v1/picture", "POST", GenerationMode.POSITIVE)]  # any bytes are a well-formed file
CASES += [(path, "POST", mode) for path in POST for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    load_all_checks()
    served = open_served(write_file(tmp_path_factory.mktemp("served")))
    with running(served, seconds=5.0, n=2000) as (url, _):
        yield schemathesis.openapi.from_url(f"{url}/openapi.json")


def test_every_path_is_driven(api: Any) -> None:
    found = {(result.ok().path, result.ok().method.upper()) for result in api.get_all_operations()}
    assert found == {(path, method) for path, method, _ in CASES}


@pytest.mark.parametrize(("path", "method", "mode"), CASES, ids=[f"{m} {p} {g.value}" for p, m, g in CASES])
def test_the_document_is_kept(api: Any, path: str, method: str, mode: GenerationMode) -> None:
    limits = hypothesis.settings(
        max_examples=1 if method == "GET" else 60,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )

    @limits
    @hypothesis.given(case=api[path][method].as_strategy(generation_mode=mode))
    def drive(case: schemathesis.Case) -> None:
        # A well-formed request need not be accepted: text in base64 is rarely a picture.
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    drive()
