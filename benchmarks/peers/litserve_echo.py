"""LitServe with one worker and its fastest documented settings for a no-op model."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator

import litserve as ls
from pydantic import BaseModel

STEP_S = float(os.environ["STEP_MS"]) / 1000


class Echo(BaseModel):
    """The echo request."""

    model: str
    text: str
    chunks: int = 1
    stream: bool = False


class EchoApi(ls.LitAPI):
    """Unary echo."""

    def setup(self, device: str) -> None:
        pass

    def decode_request(self, request: Echo) -> Echo:
        return request

    def predict(self, request: Echo) -> dict[str, str]:
        return {"model": request.model, "text": request.text}

    def encode_response(self, output: dict[str, str]) -> dict[str, str]:
        return output


class StreamApi(ls.LitAPI):
    """Streamed echo; async, so that streams run beside each other."""

    def setup(self, device: str) -> None:
        pass

    async def decode_request(self, request: Echo) -> Echo:
        return request

    async def predict(self, request: Echo) -> AsyncIterator[str]:
        for _ in range(request.chunks):
            await asyncio.sleep(STEP_S)
            yield request.text

    # FastAPI would take a return annotation for a response model, which an iterator is not.
    async def encode_response(self, output: AsyncIterator[str]):  # type: ignore[no-untyped-def]
        async for text in output:
            yield f"data: {json.dumps({'text': text})}\n\n"


if __name__ == "__main__":
    streaming = sys.argv[2] == "stream"
    api = (
        StreamApi(stream=True, enable_async=True, api_path="/v1/echo")
        if streaming
        else EchoApi(api_path="/v1/echo")
    )
    server = ls.LitServer(api, accelerator="cpu", healthcheck_path="/readyz")
    server.run(port=int(sys.argv[1]), log_level="warning", generate_client_file=False)
