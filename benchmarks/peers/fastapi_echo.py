"""Plain FastAPI under uvicorn, one process: the floor."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator

import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

STEP_S = float(os.environ["STEP_MS"]) / 1000

app = FastAPI()


class Echo(BaseModel):
    """The echo request."""

    model: str
    text: str
    chunks: int = 1
    stream: bool = False


@app.get("/readyz")
async def ready() -> dict[str, str]:
    return {"status": "ok"}


@app.post("/v1/echo", response_model=None)
async def echo(request: Echo) -> dict[str, str] | StreamingResponse:
    if not request.stream:
        return {"model": request.model, "text": request.text}

    async def events() -> AsyncIterator[bytes]:
        for _ in range(request.chunks):
            await asyncio.sleep(STEP_S)
            yield f"data: {json.dumps({'text': request.text})}\n\n".encode()
        yield b"data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", access_log=False)
