"""Requests made up from the OpenAPI description: none of them breaks the server, and all answers are as described."""

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from web_helpers import make_run

from pairsift.web.app import create_app

pytestmark = pytest.mark.slow

schemathesis = pytest.importorskip("schemathesis", reason="needs schemathesis, a dependency for tests")


@pytest.fixture(scope="module")
def application(tmp_path_factory):
    return create_app(make_run(tmp_path_factory.mktemp("schema")), {"testserver"})


def test_no_request_breaks_the_server(application):
    """Models are never loaded here: a search of this run is refused."""
    schema = schemathesis.openapi.from_asgi("/openapi.json", application)
    answers = []
    for found in schema.get_all_operations():

        @given(case=found.ok().as_strategy())
        @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        def ask(case):
            response = case.call(headers={"Host": "testserver"})
            answers.append(response.status_code)
            assert response.status_code < 500, (case.formatted_path, case.query, case.body)

        ask()
    assert len(answers) > 200 and {200, 422} <= set(answers)


def test_every_question_is_described(application):
    client = TestClient(application)
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/api/pairs", "/api/decisions", "/api/undo", "/api/spot-check", "/api/search"} <= set(paths)
    assert all(operation["description"] for path in paths.values() for operation in path.values())
