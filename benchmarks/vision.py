"""Image classification beside LitServe: the same weights and photos, over HTTP, as forms.

Photos of 640x480 and of 8 megapixels come from scikit-image's, cut and scaled. LitServe runs
the same network in two workers of one thread, with Pillow and torchvision: as TorchScript, and
by ONNX Runtime as we do; so does PyTriton in two instances, asked by its own protocol.

    make bench SUBJECT=vision
"""

from __future__ import annotations

import io
import json
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from environments import PYTRITON, libpython_folder
from formed import HERE, Contender, Run, Scenario, headpond
from harness import Server
from load import Target
from subject import Subject

BUNDLE = "bundles/efficientnet-lite0"
BOUNDARY = "headpond-benchmark"
NAME = "efficientnet-lite0"


def photos(size: tuple[int, int], count: int) -> list[bytes]:
    """Return photos of a size as JPEG, each another part of a real one."""
    from PIL import Image  # noqa: PLC0415 - only where photos are made
    from skimage import data  # noqa: PLC0415

    sources = [Image.fromarray(each()) for each in (data.coffee, data.astronaut, data.chelsea)]
    found = []
    for at in range(count):
        source = sources[at % len(sources)]
        width, height = source.size
        inset = 4 * (at // len(sources))
        part = source.crop((inset, inset, width - inset, height - inset)).resize(size)
        file = io.BytesIO()
        part.save(file, "JPEG", quality=88)
        found.append(file.getvalue())
    return found


def _target(port: int, path: str):  # type: ignore[no-untyped-def]
    def target(item: object) -> Target:
        fields = {"model": NAME, "top_k": "5"}
        parts = [
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in fields.items()
        ]
        head = (
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="image"; filename="a.jpg"\r\n'
            "Content-Type: image/jpeg\r\n\r\n"
        )
        image = item if isinstance(item, bytes) else b""
        body = "".join(parts).encode() + head.encode() + image + f"\r\n--{BOUNDARY}--\r\n".encode()
        content_type = f"multipart/form-data; boundary={BOUNDARY}"
        return Target(port=port, path=path, body=body, content_type=content_type)

    return target


def _triton_target(port: int):  # type: ignore[no-untyped-def]
    def target(item: object) -> Target:
        image = item if isinstance(item, bytes) else b""
        data = struct.pack("<I", len(image)) + image
        given = {
            "name": "image",
            "shape": [1, 1],
            "datatype": "BYTES",
            "parameters": {"binary_data_size": len(data)},
        }
        outputs = [{"name": "classes"}, {"name": "scores"}]
        head = json.dumps({"inputs": [given], "outputs": outputs}).encode()
        return Target(
            port=port,
            path="/v2/models/vision/infer",
            body=head + data,
            content_type="application/octet-stream",
            headers={"Inference-Header-Content-Length": str(len(head))},
        )

    return target


def triton_best(body: bytes) -> object:
    """Return the indices of the five best classes."""
    outputs = json.loads(body)["outputs"]
    return next(each["data"] for each in outputs if each["name"] == "classes")


def ours_best(body: bytes) -> object:
    """Return the indices of the five best classes."""
    return [each["index"] for each in json.loads(body)["data"][0]["classes"]]


def theirs_best(body: bytes) -> object:
    """Return the indices of the five best classes."""
    return json.loads(body)["classes"]


def write_networks(folder: Path) -> dict[str, Path]:
    """Write the network of the bundle as TorchScript and as ONNX."""
    import numpy as np  # noqa: PLC0415 - only where they are made
    import torch  # noqa: PLC0415

    from headpond.bundle.store import default_cache, open_bundle  # noqa: PLC0415
    from headpond_workloads.vision.engine.forward import Classifier  # noqa: PLC0415
    from headpond_workloads.vision.engine.networks import load_network  # noqa: PLC0415
    from headpond_workloads.vision.engine.onnx_export import exported  # noqa: PLC0415
    from headpond_workloads.vision.engine.options import options_of  # noqa: PLC0415

    bundle = open_bundle(HERE.parent / BUNDLE)
    checkpoint = options_of(bundle.manifest).checkpoint
    network = load_network(bundle, bundle.manifest.model["labels"], checkpoint, default_cache())
    script = folder / "network.pt"
    with torch.inference_mode():
        torch.jit.freeze(torch.jit.trace(network, torch.zeros(1, 3, 224, 224))).save(str(script))
    mean, std = np.full(3, 127.0, np.float32), np.full(3, 128.0, np.float32)
    graph = exported(Classifier(network, mean, std), "network", 224, 224, folder)
    return {"torch": script, "onnx": graph}


def contenders(folder: Path, peers: Sequence[str]) -> list[Contender]:
    server = headpond(8320, {NAME: {"bundle": BUNDLE}}, folder)
    found = [
        Contender(
            name="headpond",
            server=server,
            target=_target(8320, f"/models/{NAME}/v1/images/classifications"),
            read=ours_best,
            ours=True,
            settings=f"headpond up; threads: 2, bundle: {BUNDLE}",
        )
    ]
    networks = write_networks(folder) if peers else {}
    if "pytriton" in peers:
        found.append(_pytriton(8330, networks["onnx"]))
    served = networks if "litserve" in peers else {}
    for port, (runtime, path) in enumerate(served.items(), start=8321):
        command = [sys.executable, str(HERE / "peers/litserve_vision.py"), str(port), str(path)]
        name = f"litserve, {runtime}"
        found.append(
            Contender(
                name=name,
                server=Server(
                    name=f"litserve-{runtime}", command=command, port=port, ready_path="/readyz"
                ),
                target=_target(port, "/predict"),
                read=theirs_best,
                settings=f"two workers of one thread, max_batch_size 8, no timeout, {runtime}",
            )
        )
    return found


def _pytriton(port: int, graph: Path) -> Contender:
    command = [PYTRITON.python, str(HERE / "peers/pytriton_vision.py"), str(port), str(graph)]
    server = Server(
        name="pytriton",
        command=command,
        port=port,
        ready_path="/v2/models/vision/ready",
        env={"LD_LIBRARY_PATH": libpython_folder()},
    )
    return Contender(
        name="pytriton, onnx",
        server=server,
        target=_triton_target(port),
        read=triton_best,
        settings="two instances of one thread, max_batch_size 8, no delay, onnx",
    )


def scenarios(size: int) -> list[Scenario]:
    small, large = photos((640, 480), 12), photos((3264, 2448), 6)
    return [
        Scenario(name="640x480, 16 clients", items=(small * size)[:size], clients=16),
        Scenario(name="640x480, one client", items=(small * size)[: size // 4], clients=1),
        Scenario(name="8 megapixels, 16 clients", items=(large * size)[: size // 4], clients=16),
        Scenario(name="8 megapixels, one client", items=(large * size)[: size // 8], clients=1),
    ]


def quality(run: Run, reference: str) -> Mapping[str, str]:
    """Say how often the best class is the reference's."""
    same: dict[str, list[bool]] = {}
    for answers in run.answers.values():
        for name, found in answers.items():
            pairs = zip(found, answers.get(reference, ()), strict=False)
            same.setdefault(name, []).extend(mine[0] == theirs[0] for mine, theirs in pairs)  # type: ignore[index]
    return {
        name: f"best class equals {reference}'s for {sum(each)} of {len(each)}"
        for name, each in same.items()
    }


def peer_versions() -> dict[str, str]:
    """Return the version of the peer with an environment of its own."""
    return {"peer nvidia-pytriton": PYTRITON.version("nvidia-pytriton")}


SUBJECT = Subject(
    name="vision",
    about=__doc__,
    size=320,
    unit="photos",
    peers="litserve,pytriton",
    contenders=lambda folder, _, peers: contenders(folder, peers),
    scenarios=scenarios,
    quality=quality,
    reference="litserve, torch",
    libraries=("torch", "torchvision", "onnxruntime", "pillow", "ray", "litserve"),
    peer_versions=peer_versions,
    prepare=PYTRITON.ensure,
)

if __name__ == "__main__":
    SUBJECT.main()
