"""sentence-transformers behind FastAPI: one model in this process, requests one after another."""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor

import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import CrossEncoder, SentenceTransformer

kind, folder, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.set_num_threads(2)
app = FastAPI()
pool = ThreadPoolExecutor(1)
if kind == "embed":
    embedder = SentenceTransformer(folder, device="cpu")
else:
    scorer = CrossEncoder(folder, device="cpu")


class Texts(BaseModel):
    input: str | list[str]
    model: str = ""


class Ranking(BaseModel):
    query: str
    documents: list[str]
    model: str = ""


def _embed(texts: list[str]) -> list[list[float]]:
    vectors = embedder.encode(texts, batch_size=32, show_progress_bar=False)
    return [[float(value) for value in vector] for vector in vectors]


def _score(pairs: list[tuple[str, str]]) -> list[float]:
    return [float(value) for value in scorer.predict(pairs, batch_size=32, show_progress_bar=False)]


@app.get("/readyz")
def ready() -> str:
    return "ready"


@app.post("/v1/embeddings")
async def embeddings(asked: Texts) -> dict[str, object]:
    texts = [asked.input] if isinstance(asked.input, str) else asked.input
    vectors = await asyncio.get_running_loop().run_in_executor(pool, _embed, texts)
    return {"data": [{"index": at, "embedding": vector} for at, vector in enumerate(vectors)]}


@app.post("/v1/rerank")
async def rerank(asked: Ranking) -> dict[str, object]:
    pairs = [(asked.query, document) for document in asked.documents]
    scores = await asyncio.get_running_loop().run_in_executor(pool, _score, pairs)
    ranked = sorted(enumerate(scores), key=lambda each: -each[1])
    return {"results": [{"index": at, "relevance_score": score} for at, score in ranked]}


if __name__ == "__main__":
    uvicorn.run(app, port=port, log_level="warning")
