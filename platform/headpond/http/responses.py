"""Complete answers of the routes that do no model work."""

from __future__ import annotations

from pydantic import BaseModel
from starlette.responses import Response


def json_response(body: BaseModel, status: int = 200) -> Response:
    """Return a wire type as a JSON answer."""
    return Response(body.model_dump_json(), status_code=status, media_type="application/json")
