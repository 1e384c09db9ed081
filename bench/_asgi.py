"""A constant over Starlette, for uvicorn and granian: the body is read whole, as every face of Twoshift does."""
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# Starlette is in an environment of its own

from __future__ import annotations

import os

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

BODY = b'"%b"' % (b"x" * (int(os.environ["BODY_BYTES"]) - 2))


async def constant(request: Request) -> Response:
    await request.body()
    return Response(BODY, media_type="application/json")


app = Starlette(routes=[Route("/v2/models/identity/infer", constant, methods=["POST"])])
