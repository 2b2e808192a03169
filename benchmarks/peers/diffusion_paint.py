"""One contender of the diffusion benchmark: paints what it is told, says when each was done.

`ours` is the engine behind its loop; `pipeline` diffusers' pipeline, one request at a time in
the order they came; `equals` the same pipeline, with those that wait and have the same steps
and guidance in one call.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import queue
import resource
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from diffusers import StableDiffusionPipeline
from transformers import CLIPTokenizer

from headpond.bundle.store import Bundle, open_bundle
from headpond.call import Call, Failed, Output
from headpond.engine import EngineSettings
from headpond.scheduling.loop import loop_for
from headpond_workloads.diffusion.engine.components import (
    AUTOENCODERS,
    DENOISERS,
    load_encoder,
    load_network,
    read_config,
)
from headpond_workloads.diffusion.engine.load import load
from headpond_workloads.diffusion.engine.options import inputs_of, options_of, outputs_of
from headpond_workloads.diffusion.engine.schedulers import scheduler_of
from headpond_workloads.diffusion.items import Painted, Picture, Preview
from headpond_workloads.diffusion.record import record

MOST_EQUALS = 8
STATE_BYTES = 4 * 2**30


class Painter(Protocol):
    """What paints."""

    def paint(self, wanted: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Paint each picture that comes at its `at_s`; return what came when."""


class Ours:
    """The engine behind its loop, without HTTP and Ray."""

    def __init__(self, bundle: Bundle, threads: int) -> None:
        self.engine = load(bundle, EngineSettings(state_bytes=STATE_BYTES, threads=threads))

    def paint(self, wanted: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        return asyncio.run(self._paint(wanted))

    async def _paint(self, wanted: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        loop = loop_for(
            record,
            self.engine,
            record.bind(self.engine.symbols, "float32"),
            state_bytes=STATE_BYTES,
            bundle="benchmark",
            observer=lambda report: None,
            max_wait_s=600.0,
        )
        loop.start()
        begin_s = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._one(loop, each, begin_s)) for each in wanted]
        finally:
            await loop.stop(5.0)
        return [task.result() for task in tasks]

    async def _one(self, loop: Any, given: Mapping[str, Any], begin_s: float) -> dict[str, Any]:
        await asyncio.sleep(max(begin_s + given["at_s"] - time.perf_counter(), 0.0))
        picture = Picture(
            prompt=given["prompt"],
            steps=given["steps"],
            guidance=given["guidance"],
            seed=given["seed"],
            partials=given.get("partials", 0),
        )
        call = Call(
            request_id="",
            tenant="",
            workload="diffusion",
            model="",
            items=(picture,),
            deadline_s=600.0,
            stream=bool(picture.partials),
        )
        answer, first_s, content = await loop.submit(call), None, b""
        async for events in answer.batches():
            for event in events:
                if isinstance(event, Failed):
                    raise event.error
                payload = event.payload if isinstance(event, Output) else None
                if isinstance(payload, Preview) and first_s is None:
                    first_s = time.perf_counter() - begin_s - given["at_s"]
                if isinstance(payload, Painted):
                    content = payload.content
        took_s = time.perf_counter() - begin_s - given["at_s"]
        return {"took_s": took_s, "first_s": first_s, "png": base64.b64encode(content).decode()}


class Pipeline:
    """Diffusers' pipeline on a thread of its own."""

    def __init__(self, bundle: Bundle, threads: int, most: int) -> None:
        torch.set_num_threads(threads)
        self.most = most
        options, (reader,) = options_of(bundle.manifest), inputs_of(bundle.manifest).readers
        model = json.loads(bundle.files["tokenizer"].read_text())["model"]
        outputs = outputs_of(bundle.manifest)
        self.size = {"width": outputs.width, "height": outputs.height}
        self.pipeline: Any = StableDiffusionPipeline(
            vae=load_network(bundle, options.autoencoder, AUTOENCODERS, torch.float32, ""),
            text_encoder=load_encoder(bundle, reader.encoder, reader.config, torch.float32, ""),
            tokenizer=CLIPTokenizer(
                vocab=model["vocab"],
                merges=[tuple(each) for each in model["merges"]],
                model_max_length=reader.tokens,
            ),
            unet=load_network(bundle, options.denoiser, DENOISERS, torch.float32, ""),
            scheduler=scheduler_of(outputs.scheduler, read_config(bundle.files[options.scheduler])),
            safety_checker=None,
            feature_extractor=None,
            requires_safety_checker=False,
        )
        self.pipeline.set_progress_bar_config(disable=True)

    def paint(self, wanted: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = [{} for _ in wanted]
        come: queue.Queue[int] = queue.Queue()
        begin_s = time.perf_counter()
        worker = threading.Thread(target=self._work, args=(wanted, come, found, begin_s))
        worker.start()
        for at in sorted(range(len(wanted)), key=lambda each: wanted[each]["at_s"]):
            time.sleep(max(begin_s + wanted[at]["at_s"] - time.perf_counter(), 0.0))
            come.put(at)
        worker.join()
        return found

    def _work(
        self,
        wanted: Sequence[Mapping[str, Any]],
        come: queue.Queue[int],
        found: list[dict[str, Any]],
        begin_s: float,
    ) -> None:
        waiting: list[int] = []
        for _ in range(len(wanted)):
            if not all(found):
                waiting = self._batch(wanted, come, found, begin_s, waiting)

    def _batch(
        self,
        wanted: Sequence[Mapping[str, Any]],
        come: queue.Queue[int],
        found: list[dict[str, Any]],
        begin_s: float,
        waiting: list[int],
    ) -> list[int]:
        """Paint the one that waits longest, and its equals; return who still waits."""
        if not waiting:
            waiting.append(come.get())
        while not come.empty():
            waiting.append(come.get())
        first = wanted[waiting[0]]
        alike = [
            at
            for at in waiting
            if (wanted[at]["steps"], wanted[at]["guidance"]) == (first["steps"], first["guidance"])
        ][: self.most]
        given = [wanted[at] for at in alike]
        with torch.inference_mode():
            images = self.pipeline(
                [each["prompt"] for each in given],
                num_inference_steps=first["steps"],
                guidance_scale=first["guidance"],
                generator=[torch.Generator().manual_seed(each["seed"]) for each in given],
                **self.size,
            ).images
        for at, image in zip(alike, images, strict=True):
            file = io.BytesIO()
            image.save(file, "png")
            took_s = time.perf_counter() - begin_s - wanted[at]["at_s"]
            found[at] = {"took_s": took_s, "png": base64.b64encode(file.getvalue()).decode()}
        return [at for at in waiting if at not in alike]


def main() -> None:
    name, location, threads = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    bundle = open_bundle(location)
    makers: Mapping[str, Callable[[], Painter]] = {
        "ours": lambda: Ours(bundle, threads),
        "pipeline": lambda: Pipeline(bundle, threads, 1),
        "equals": lambda: Pipeline(bundle, threads, MOST_EQUALS),
    }
    painter = makers[name]()
    print("ready", flush=True)
    for line in sys.stdin:
        wanted = json.loads(line)["pictures"]
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        found = painter.paint(wanted)
        answer = {
            "pictures": found,
            "wall_s": time.perf_counter() - wall_s,
            "cpu_s": time.process_time() - cpu_s,
            "rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
