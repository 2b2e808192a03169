"""A bundle's forward: native where that can be, else by transformers' modules."""

from __future__ import annotations

import logging
from dataclasses import replace

from headpond.bundle.store import Bundle
from headpond.engine import EngineSettings
from headpond.errors import BundleError
from headpond_workloads.generation.engine.folder import model_folder
from headpond_workloads.generation.engine.forward import Forward, Opened
from headpond_workloads.generation.engine.native.model import open_native
from headpond_workloads.generation.engine.options import Options
from headpond_workloads.generation.engine.probe import check_forward
from headpond_workloads.native.library import NativeUnavailable

logger = logging.getLogger(__name__)

_PROBE_BLOCKS, _PROBE_BLOCK_TOKENS = 2, 16


def open_model(
    bundle: Bundle, options: Options, settings: EngineSettings, block_tokens: int
) -> Opened:
    """Open a bundle's model in the way its options ask for, or the best there is.

    Args:
        bundle: The bundle.
        options: Its options.
        settings: Of the deployment.
        block_tokens: Tokens of a KV block.

    Raises:
        BundleError: The options ask for what can't be, or the files don't make a model that
            can be served.
    """
    needed_for, torch_for = _needs_native(options), _needs_torch(options, settings)
    if needed_for is not None and torch_for is not None:
        raise BundleError(
            f"{needed_for} needs the native kernels, {torch_for} those of torch",
            param="execution.options",
        )
    with model_folder(bundle) as folder:
        if torch_for is None:
            try:
                return open_native(folder, bundle, options, settings, block_tokens)
            except NativeUnavailable as reason:
                if needed_for is not None:
                    raise BundleError(
                        f"{needed_for}: {reason}", param="execution.options"
                    ) from reason
                logger.warning("computing with transformers' modules: %s", reason)
        # Most replicas never need torch, and it takes much memory and time.
        if settings.tensor_parallel > 1:
            from headpond_workloads.generation.engine.parallel import open_parallel  # noqa: PLC0415

            return open_parallel(folder, bundle, options, settings, block_tokens)
        from headpond_workloads.generation.engine.torch_model import open_torch  # noqa: PLC0415

        return open_torch(folder, bundle, options, settings, block_tokens)


def assemble(opened: Opened, blocks: int, options: Options) -> Forward:
    """Try a model, then give it `blocks` blocks of cache.

    Raises:
        BundleError: It computes something else than it should.
    """
    probed = opened.make(replace(opened.shape, block_tokens=_PROBE_BLOCK_TOKENS), _PROBE_BLOCKS)
    check_forward(opened.reading, probed.runner, quantized=options.quantization is not None)
    return opened.make(opened.shape, blocks)


def _needs_torch(options: Options, settings: EngineSettings) -> str | None:
    if settings.tensor_parallel > 1:
        return f"tensor_parallel: {settings.tensor_parallel}"
    if options.attention is not None:
        return f"attention: {options.attention}"
    if options.cuda_graphs is True:
        return "cuda_graphs: true"
    return "kernels: torch" if options.kernels == "torch" else None


def _needs_native(options: Options) -> str | None:
    if options.quantization is not None:
        return f"quantization: {options.quantization}"
    if options.adapters:
        return "adapters"
    if options.determinism is not None:
        return f"determinism: {options.determinism}"
    return "kernels: native" if options.kernels == "native" else None
