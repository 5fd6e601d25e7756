"""The API documentation: a page made from the OpenAPI description of the application."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from pairsift.options import in_words
from pairsift.web.pages import Pages

Tree = Mapping[str, Any]


def add_reference(app: FastAPI, pages: Pages) -> None:
    """Serve the API documentation at `/api`.

    Args:
        app: The application, with all its endpoints.
        pages: The pages of the run.
    """

    @app.get("/api", response_class=HTMLResponse, include_in_schema=False)
    def page() -> str:
        return pages.render("API", endpoints=list(endpoints_of(app.openapi())))


def endpoints_of(description: Tree) -> Iterator[dict[str, Any]]:
    """Yield the endpoints of an OpenAPI description, each with its method, path, text and fields.

    Args:
        description: The content of `/openapi.json`.
    """
    schemas = description.get("components", {}).get("schemas", {})
    for path, methods in description["paths"].items():
        for method, about in methods.items():
            text = about.get("description") or about.get("summary", "")
            fields = [
                _field(one["name"], one["schema"], one.get("required", False), one["in"])
                for one in about.get("parameters", [])
            ]
            fields += _body(about.get("requestBody", {}).get("content", {}), schemas)
            yield {"method": method.upper(), "path": path, "text": text, "fields": fields}


def _body(content: Tree, schemas: Tree) -> Iterator[dict[str, Any]]:
    """Yield the fields of a body, or the body itself if it is no object."""
    for kind, form in content.items():
        schema = _resolved(form["schema"], schemas)
        if "properties" not in schema:
            yield _field(kind, schema, True, "body")
        yield from _fields("", schema, schemas)


def _fields(prefix: str, schema: Tree, schemas: Tree) -> Iterator[dict[str, Any]]:
    """Yield the fields of an object and of the objects in it; `[]` is after the name of a list."""
    for name, field in schema.get("properties", {}).items():
        full = prefix + name
        yield _field(full, field, name in schema.get("required", ()), "body")
        yield from _fields(f"{full}.", _resolved(field, schemas), schemas)
        yield from _fields(f"{full}[].", _resolved(field.get("items", {}), schemas), schemas)


def _resolved(schema: Tree, schemas: Tree) -> Tree:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: Tree = schemas.get(name, schema)
    return found


def _field(name: str, schema: Tree, required: bool, place: str) -> dict[str, Any]:
    default = "required" if required else schema.get("default", "")
    return {"name": name, "place": place, "kind": in_words(schema), "default": default}
