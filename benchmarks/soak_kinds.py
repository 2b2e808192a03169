"""What the users of a soak ask of the demo configuration."""

from __future__ import annotations

import random
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import soxr  # type: ignore[import-untyped]

from headpond.bundle.store import open_bundle
from headpond_workloads.speech.engine.front.decoding import Bounds, decode
from speech_socket import RATE_HZ, SENT_HZ

BUNDLES = Path(__file__).parent.parent / "bundles"
MISTAKE = 0.03
"""So many name a model that is not there."""

SPEECH = ("streaming-words", "whisper-tiny-en")
APPLICATIONS = {
    "smollm2-135m": "generation-smollm2",
    "all-minilm-l6-v2": "embedding-minilm",
    "minilm-maxsim": "reranking-minilm",
    "efficientnet-lite0": "vision-efficientnet",
    "whisper-tiny-en": "speech-whisper",
    "streaming-words": "speech-words",
    "tinysd-digits": "diffusion-tinysd",
}
"""The application behind each model of `deployments/local.yaml`."""

Body = Mapping[str, object]
Content = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One way to ask over HTTP.

    Attributes:
        name: In identifiers.
        workload: Who serves it.
        model: Who is asked.
        path: The route.
        body: Makes the next body, but for the model.
        ending: What the last event of a stream holds that ends well; nothing for whole answers.
        file: Sent in a form, beside the body.
        users: How many ask at once.
        pause_s: What each waits between two requests, on average.
        takes_s: About how long an answer takes; who leaves early does so within that.
    """

    name: str
    workload: str
    model: str
    path: str
    body: Callable[[random.Random], Body]
    ending: str = ""
    file: bytes = b""
    users: int = 1
    pause_s: float = 0.5
    takes_s: float = 0.3

    def content(self, chance: random.Random) -> Content:
        """Return the next request's content, as httpx takes it; sometimes a wrong one."""
        model = "no-such-model" if chance.random() < MISTAKE else self.model
        body = {**self.body(chance), "model": model}
        if self.file:
            return {"data": body, "files": {"file": ("spoken.wav", self.file)}}
        return {"json": body}

    def streaming(self, ending: str, users: int = 1, **fields: object) -> Kind:
        """Return the same as a stream."""
        return replace(
            self,
            name=f"{self.name}-stream",
            body=lambda chance: {**self.body(chance), "stream": True, **fields},
            ending=ending,
            users=users,
        )


def fixture(bundle: str, field: str) -> str:
    """Return a field of a bundle's first fixture."""
    return str(open_bundle(BUNDLES / bundle).manifest.fixtures[0].given[field])


def spoken() -> bytes:
    """Return what speakers say, as PCM16 at `SENT_HZ`."""
    clip = decode(b64decode(fixture(SPEECH[0], "audio")), RATE_HZ, Bounds(duration_ms=60_000))
    samples = (soxr.resample(clip, RATE_HZ, SENT_HZ) * 32_767.0).clip(-32_768, 32_767)
    return bytes(samples.astype("<i2").tobytes())


def kinds() -> Sequence[Kind]:
    """Return every way to ask the demo configuration over HTTP."""
    image = fixture("efficientnet-lite0", "image")
    chat = Kind(
        name="chat",
        workload="generation",
        model="smollm2-135m",
        path="/v1/chat/completions",
        body=_chat,
        takes_s=1.5,
    )
    painting = Kind(
        name="picture",
        workload="diffusion",
        model="tinysd-digits",
        path="/v1/images/generations",
        body=_picture,
        pause_s=1.0,
        takes_s=1.0,
    )
    listening = Kind(
        name="file",
        workload="speech",
        model=SPEECH[0],
        path="/v1/audio/transcriptions",
        body=lambda _: {},
        file=b64decode(fixture(SPEECH[0], "audio")),
        pause_s=1.5,
    )
    return (
        chat,
        chat.streaming("[DONE]", users=2),
        painting,
        painting.streaming("image_generation.completed", partial_images=1),
        listening,
        replace(listening, name="file-whisper", model=SPEECH[1]),
        Kind(
            name="vectors",
            workload="embedding",
            model="all-minilm-l6-v2",
            path="/v1/embeddings",
            body=lambda chance: {"input": _texts(chance)},
            users=2,
        ),
        Kind(
            name="ranking",
            workload="reranking",
            model="minilm-maxsim",
            path="/v1/rerank",
            body=lambda chance: {"query": _words(chance, 6), "documents": _texts(chance)},
        ),
        Kind(
            name="classes",
            workload="vision",
            model="efficientnet-lite0",
            path="/v1/images/classifications",
            body=lambda chance: {"image": image, "top_k": 1 + chance.randrange(5)},
        ),
    )


def _words(chance: random.Random, most: int) -> str:
    words = ("water", "mill", "wheel", "pond", "gate", "stone", "river", "grain")
    return " ".join(chance.choices(words, k=1 + chance.randrange(most)))


def _texts(chance: random.Random) -> Sequence[str]:
    return [_words(chance, 40) for _ in range(1 + chance.randrange(6))]


def _chat(chance: random.Random) -> Body:
    return {
        "messages": [{"role": "user", "content": f"Tell of {_words(chance, 30)}."}],
        "max_tokens": 4 + chance.randrange(28),
    }


def _picture(chance: random.Random) -> Body:
    return {"prompt": f"a red {chance.randrange(10)}", "num_inference_steps": 8}
