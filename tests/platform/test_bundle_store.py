"""The store: every byte is checked, and processes that share or abandon a fetch do no harm."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest.mock import create_autospec
from uuid import uuid4

import fsspec  # type: ignore[import-untyped]
import pytest
import yaml
from huggingface_hub import hf_hub_download

from headpond.bundle import download
from headpond.bundle.store import Store, default_cache, open_bundle
from headpond.errors import BundleError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONTENT = b"GGUF\x03\0\0\0" + bytes(range(256)) * 40


def write_bundle(root: Path, source: str, content: bytes = CONTENT) -> Path:
    """Write a bundle of one artifact `weights`, locked to `content`."""
    root.mkdir(exist_ok=True)
    document = {
        "name": "tiny",
        "version": "1.0.0",
        "workload": "echo",
        "summary": "A tiny bundle.",
        "licence": "MIT",
        "artifacts": [
            {
                "name": "weights",
                "source": source,
                "bytes": len(content),
                "sha256": hashlib.sha256(content).hexdigest(),
            }
        ],
        "execution": {"architecture": "Echo", "dtype": "float32"},
    }
    (root / "bundle.yaml").write_text(yaml.safe_dump(document))
    return root


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def files_below(folder: Path) -> list[Path]:
    """Return the files of a cache that a reader may take for whole."""
    listed = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in listed if path.suffix not in {".lock", ".part"}]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def in_memory() -> Iterator[str]:
    """Return the URL of a folder that only this process can read."""
    url = f"memory://{uuid4().hex}"
    yield url
    fsspec.filesystem("memory").rm(url, recursive=True)


def put(url: str, content: bytes) -> None:
    fsspec.filesystem("memory").pipe_file(url, content)


def test_local_files_are_used_in_place_and_nothing_is_copied(tmp_path: Path, cache: Path) -> None:
    root = write_bundle(tmp_path / "bundle", "file:w.gguf")
    (root / "w.gguf").write_bytes(CONTENT)
    bundle = open_bundle(root, cache=cache)
    assert bundle.files == {"weights": root / "w.gguf"}
    assert bundle.root == root
    assert bundle.manifest.name == "tiny"
    assert not files_below(cache)


@pytest.mark.parametrize("at", [0, 9, len(CONTENT) // 2, len(CONTENT) - 1])
def test_a_flipped_byte_anywhere_is_named(tmp_path: Path, cache: Path, at: int) -> None:
    root = write_bundle(tmp_path / "bundle", "file:w.gguf")
    (root / "w.gguf").write_bytes(flipped(CONTENT, at))
    with pytest.raises(BundleError, match="'weights' has other content") as caught:
        open_bundle(root, cache=cache)
    assert caught.value.param == "artifacts.weights.sha256"
    assert str(tmp_path) not in caught.value.message


def test_a_wrong_size_is_named_with_both_sizes(tmp_path: Path, cache: Path) -> None:
    root = write_bundle(tmp_path / "bundle", "file:w.gguf")
    (root / "w.gguf").write_bytes(CONTENT[:-1])
    says = f"has {len(CONTENT) - 1} bytes, the manifest says {len(CONTENT)}"
    with pytest.raises(BundleError, match=says) as caught:
        open_bundle(root, cache=cache)
    assert caught.value.param == "artifacts.weights.bytes"


def test_a_cached_file_needs_no_source_any_more(
    cache: Path, tmp_path: Path, in_memory: str
) -> None:
    put(f"{in_memory}/w.gguf", CONTENT)
    root = write_bundle(tmp_path / "bundle", f"{in_memory}/w.gguf")
    first = open_bundle(root, cache=cache).files["weights"]
    put(f"{in_memory}/w.gguf", b"gone")
    assert open_bundle(root, cache=cache).files["weights"] == first
    assert first.read_bytes() == CONTENT
    assert first.is_relative_to(cache)
    assert first.suffix == ".gguf"
    assert files_below(cache) == [first]


def test_a_damaged_cached_file_is_fetched_again(
    cache: Path, tmp_path: Path, in_memory: str
) -> None:
    put(f"{in_memory}/w.gguf", CONTENT)
    root = write_bundle(tmp_path / "bundle", f"{in_memory}/w.gguf")
    path = open_bundle(root, cache=cache).files["weights"]
    path.chmod(0o644)
    path.write_bytes(flipped(CONTENT, 77))
    assert open_bundle(root, cache=cache).files["weights"].read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (flipped(CONTENT, 5000), "has other content"),
        (CONTENT[:-1], "bytes, the manifest says"),
        (CONTENT + b"x", "has more than the"),
    ],
    ids=["flipped", "short", "long"],
)
def test_what_comes_wrong_is_refused_and_not_kept(
    cache: Path, tmp_path: Path, in_memory: str, sent: bytes, says: str
) -> None:
    put(f"{in_memory}/w.gguf", sent)
    root = write_bundle(tmp_path / "bundle", f"{in_memory}/w.gguf")
    with pytest.raises(BundleError, match=says):
        open_bundle(root, cache=cache)
    assert not files_below(cache)
    put(f"{in_memory}/w.gguf", CONTENT)
    assert open_bundle(root, cache=cache).files["weights"].read_bytes() == CONTENT


@pytest.mark.parametrize("url", ["memory://nowhere/w.gguf", "nonesuch://x/w.gguf"])
def test_what_cannot_be_fetched_is_named(cache: Path, tmp_path: Path, url: str) -> None:
    root = write_bundle(tmp_path / "bundle", url)
    with pytest.raises(BundleError, match="'weights' cannot be fetched") as caught:
        open_bundle(root, cache=cache)
    assert caught.value.param == "artifacts.weights.source"
    assert caught.value.__cause__ is not None


def test_a_cache_that_cannot_be_written_is_named(
    cache: Path, tmp_path: Path, in_memory: str
) -> None:
    put(f"{in_memory}/w.gguf", CONTENT)
    cache.write_text("a file where the folder should be")
    root = write_bundle(tmp_path / "bundle", f"{in_memory}/w.gguf")
    with pytest.raises(BundleError, match="'weights' cannot be read or kept") as caught:
        open_bundle(root, cache=cache)
    assert str(tmp_path) not in caught.value.message


def test_a_hub_file_is_fetched_by_the_hubs_own_client(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(repo: str, path: str, *, revision: str, local_dir: str) -> str:
        assert (repo, path, revision) == ("org/repo", "gguf/w.gguf", COMMIT)
        fetched = Path(local_dir) / path
        fetched.parent.mkdir(parents=True)
        fetched.write_bytes(CONTENT)
        return str(fetched)

    client = create_autospec(hf_hub_download, side_effect=fetch)
    monkeypatch.setattr(download, "hf_hub_download", client)
    root = write_bundle(tmp_path / "bundle", f"hf:org/repo@{COMMIT}/gguf/w.gguf")
    path = open_bundle(root, cache=cache).files["weights"]
    assert path.read_bytes() == CONTENT
    assert files_below(cache) == [path]
    open_bundle(root, cache=cache)
    assert client.call_count == 1


class Terminal(io.StringIO):
    """A terminal, as far as programs ask."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stderr", [Terminal(), io.StringIO()], ids=["terminal", "pipe"])
def test_progress_is_shown_on_terminals_only(
    cache: Path,
    tmp_path: Path,
    in_memory: str,
    monkeypatch: pytest.MonkeyPatch,
    stderr: io.StringIO,
) -> None:
    put(f"{in_memory}/w.gguf", CONTENT)
    monkeypatch.setattr(sys, "stderr", stderr)
    open_bundle(write_bundle(tmp_path / "bundle", f"{in_memory}/w.gguf"), cache=cache)
    assert ("weights" in stderr.getvalue()) == stderr.isatty()


def test_pickled_weights_are_refused_before_anything_is_fetched(
    cache: Path, tmp_path: Path
) -> None:
    root = write_bundle(tmp_path / "bundle", "memory://nowhere/pytorch_model.bin")
    with pytest.raises(BundleError, match="is a pickle"):
        open_bundle(root, cache=cache)


def test_an_artifact_that_is_not_locked_is_learned(
    cache: Path, tmp_path: Path, in_memory: str
) -> None:
    put(f"{in_memory}/w.gguf", CONTENT)
    store = Store(cache)
    artifact = store.learn("weights", f"{in_memory}/w.gguf", tmp_path)
    assert artifact.bytes == len(CONTENT)
    assert artifact.sha256 == hashlib.sha256(CONTENT).hexdigest()
    put(f"{in_memory}/w.gguf", b"gone")
    assert store.get(artifact, tmp_path).read_bytes() == CONTENT


def test_the_cache_is_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADPOND_CACHE", str(tmp_path / "mine"))
    assert default_cache() == tmp_path / "mine"
    monkeypatch.delenv("HEADPOND_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache() == tmp_path / "xdg" / "headpond"


class Server(ThreadingHTTPServer):
    """Serves `CONTENT`, once it is let; `served` counts the answers that were begun."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.served = 0
        self.half_sent = threading.Event()
        self.may_finish = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/w.gguf"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.served += 1
        self.send_response(200)
        self.send_header("content-length", str(len(CONTENT)))
        self.end_headers()
        half = len(CONTENT) // 2
        self.wfile.write(CONTENT[:half])
        self.wfile.flush()
        self.server.half_sent.set()
        if self.server.may_finish.wait(30):
            self.wfile.write(CONTENT[half:])

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield server
        server.may_finish.set()
        server.shutdown()


OPEN = """
import sys
from pathlib import Path
from headpond.bundle.store import open_bundle
print("go", flush=True)
print(open_bundle(sys.argv[1], cache=Path(sys.argv[2])).files["weights"])
"""


def start_open(root: Path, cache: Path) -> subprocess.Popen[str]:
    """Open a bundle in another process, which says "go" just before."""
    command = [sys.executable, "-c", OPEN, str(root), str(cache)]
    environment: Mapping[str, str] = os.environ | {"NO_PROXY": "127.0.0.1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == "go\n"
    return process


def test_two_processes_fetch_once_and_both_get_it(
    server: Server, cache: Path, tmp_path: Path
) -> None:
    root = write_bundle(tmp_path / "bundle", server.url)
    first = start_open(root, cache)
    assert server.half_sent.wait(30)
    second = start_open(root, cache)  # while the first one holds half of it
    server.may_finish.set()
    outputs = {process.communicate(timeout=30)[0].strip() for process in (first, second)}
    assert [first.returncode, second.returncode] == [0, 0]
    assert len(outputs) == 1
    assert Path(outputs.pop()).read_bytes() == CONTENT
    assert server.served == 1


def test_a_process_killed_half_way_leaves_nothing_that_counts(
    server: Server, cache: Path, tmp_path: Path
) -> None:
    root = write_bundle(tmp_path / "bundle", server.url)
    process = start_open(root, cache)
    assert server.half_sent.wait(30)
    process.kill()
    process.communicate(timeout=30)
    assert not files_below(cache)
    server.may_finish.set()
    assert start_open(root, cache).communicate(timeout=30)[0]
    [whole] = files_below(cache)
    assert whole.read_bytes() == CONTENT
