"""What a bundle's `execution.options` and `output` may say about vision."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headpond.bundle.manifest import Manifest, Positive, Sha256, Text
from headpond.bundle.section import Section, read_section


class Checkpoint(Section):
    """Weights as `torch.save` wrote them, for models that nobody has as safetensors.

    They are no artifact, since a pickle can run code. Of this one file, with exactly this
    digest, plain tensors are read and nothing else, once a machine; see `checkpoint`.

    Attributes:
        source: Where it lies, as of an artifact; must be on this machine.
        bytes: Its exact size.
        sha256: Its digest.
        rename: `in_order` gives its tensors the names of the architecture's own, in their
            order, where the file has others; `none` keeps names.
    """

    source: Text
    bytes: Positive
    sha256: Sha256
    rename: Literal["none", "in_order"] = "none"


class Options(Section):
    """How the engine computes.

    Attributes:
        runtime: `onnxruntime` computes the network exported to ONNX, `torch` its modules;
            `auto` takes ONNX Runtime for float32 on the CPU, else torch.
        batch_images: Images in one batch; by default 4 on a CPU, 32 on a GPU.
        checkpoint: Weights that are not an artifact.
        takes_pixels: Whether a file of ONNX normalises by itself, as those do that are exported
            here: it takes 0 to 255, and channels last.
    """

    runtime: Literal["auto", "onnxruntime", "torch"] = "auto"
    batch_images: Annotated[int, Field(ge=1, le=32)] | None = None
    checkpoint: Checkpoint | None = None
    takes_pixels: bool = False


class Outputs(Section):
    """What the network's outputs mean.

    Attributes:
        labels: The artifact that names them, one a line.
        activation: What makes scores of them: `softmax` where one label is true, `sigmoid`
            where each may be.
    """

    labels: Text
    activation: Literal["softmax", "sigmoid"] = "softmax"


def options_of(manifest: Manifest) -> Options:
    """Read a bundle's options.

    Raises:
        BundleError: Names the first option that is not valid.
    """
    return read_section(Options, manifest.execution.options, "execution.options")


def outputs_of(manifest: Manifest) -> Outputs:
    """Read a bundle's output contract.

    Raises:
        BundleError: Names the first field that is not valid.
    """
    return read_section(Outputs, manifest.output, "output")
