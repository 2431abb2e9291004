"""GitHub's own description: validates what goes over the wire, and fills in what the fake has no opinion on."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from openapi_core import OpenAPI
from openapi_core.testing import MockRequest, MockResponse

HOST = "http://fake"


@cache
def _raw() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("rest_description.json").read_text(encoding="utf-8"))


@cache
def _openapi() -> OpenAPI:
    return OpenAPI.from_dict(_raw())


def complaints(
    method: str, path: str, query: dict[str, list[str]], body: bytes, status: int, answer: bytes
) -> list[str]:
    """What GitHub's description says against this request and this answer."""
    data = {"data": body, "content_type": "application/json"} if body else {}
    args = {name: values[0] for name, values in query.items()}
    request = MockRequest(HOST, method.lower(), path, args=args, **data)
    found: list[str] = []
    try:
        _openapi().validate_request(request)
    except Exception as error:
        found.append(f"request {method} {path}: {_words(error)}")
    if status < 400 and status != 302:
        try:
            response = MockResponse(answer, status, content_type="application/json")
            _openapi().validate_response(request, response)
        except Exception as error:
            found.append(f"answer to {method} {path}: {_words(error)}")
    return found


def _words(error: BaseException) -> str:
    cause = error.__cause__
    schema_errors = getattr(cause, "schema_errors", None)
    if schema_errors:
        return "; ".join(f"{'/'.join(map(str, each.absolute_path))}: {each.message[:200]}" for each in schema_errors)
    return f"{type(error).__name__}: {str(cause or error)[:300]}"


def filled(schema: str, **values: Any) -> dict[str, Any]:
    """An object of the description's `schema` with every required key; `values` are what matters."""
    return _merge(json.loads(_sample(schema)), values)


def _merge(base: Any, values: Any) -> Any:
    if isinstance(base, dict) and isinstance(values, dict):
        return {**base, **{key: _merge(base.get(key), item) for key, item in values.items()}}
    return values


@cache
def _sample(schema: str) -> str:
    return json.dumps(_instance(_raw()["components"]["schemas"][schema]))


def _instance(schema: dict[str, Any]) -> Any:
    if "$ref" in schema:
        _, _, group, name = schema["$ref"].split("/", 3)
        return _instance(_raw()["components"][group][name])
    if schema.get("nullable"):
        return None
    if "enum" in schema:
        return schema["enum"][0]
    for word in ("allOf", "oneOf", "anyOf"):
        if word in schema and "properties" not in schema:
            return _instance(schema[word][0])
    kind = schema.get("type", "object")
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: _instance(properties.get(name, {})) for name in schema.get("required", ())}
    if kind == "array":
        return []
    if kind == "string":
        return {"date-time": "2026-01-01T00:00:00Z", "uri": "https://fake/"}.get(schema.get("format", ""), "x")
    return {"integer": 1, "number": 1.0, "boolean": False}[kind]
