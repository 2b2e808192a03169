"""Diffusion's HTTP routes, each in the dialect that its clients speak."""

from __future__ import annotations

from headpond.dialect import Route
from headpond_workloads.diffusion.dialect_pictures import (
    EditExchange,
    GenerationExchange,
    VariationExchange,
)
from headpond_workloads.diffusion.example import RING
from headpond_workloads.diffusion.schema import (
    EDITS_PATH,
    GENERATIONS_PATH,
    VARIATIONS_PATH,
    EditRequest,
    GenerationRequest,
    PictureEvent,
    PictureList,
    VariationRequest,
)

routes: tuple[Route, ...] = (
    Route.json(
        GENERATIONS_PATH,
        "Paint pictures that a text describes.",
        request=GenerationRequest,
        exchange=GenerationExchange,
        response=PictureList,
        chunk=PictureEvent,
        example={"prompt": "a red seven", "seed": 7},
    ),
    Route.json(
        EDITS_PATH,
        "Paint a picture anew as a text says, all of it or what a mask leaves open.",
        request=EditRequest,
        exchange=EditExchange,
        response=PictureList,
        chunk=PictureEvent,
        form=True,
        example={"prompt": "a red zero", "image": RING, "strength": 0.6, "seed": 7},
    ),
    Route.json(
        VARIATIONS_PATH,
        "Refused: pictures are painted by a text; edits begin from another picture.",
        request=VariationRequest,
        exchange=VariationExchange,
        response=PictureList,
        form=True,
        example={"image": RING},
    ),
)
