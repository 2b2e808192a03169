"""From a bundle and a deployment's settings to an encoder, whatever computes it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from headpond.bundle.store import Bundle
from headpond.engine import EngineSettings
from headpond.errors import BundleError
from headpond_workloads.encoders.config import EncoderConfig, read_config
from headpond_workloads.encoders.encoder import Encoder
from headpond_workloads.encoders.native.encoder import NativeEncoder
from headpond_workloads.encoders.native.weights import NativeWeights
from headpond_workloads.encoders.options import EncoderOptions
from headpond_workloads.encoders.tokenizer import Tokenizer, read_tokenizer
from headpond_workloads.encoders.torch_encoder import TorchEncoder
from headpond_workloads.encoders.weights import EncoderWeights, WeightFile, encoder_weights
from headpond_workloads.native.library import NativeUnavailable
from headpond_workloads.native.packing import Format

logger = logging.getLogger(__name__)

_ENGINE = "execution.options.engine"
_QUANTIZATION = "execution.options.quantization"
_FORMATS = {"float32": Format.FLOAT32, "bfloat16": Format.BFLOAT16}


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """An encoder with what belongs to it.

    Attributes:
        config: What it is.
        encoder: Computes.
        tokenizer: Makes its token IDs.
        file: The weights, or of a graph only what it lacks: a head; None where there are none.
    """

    config: EncoderConfig
    encoder: Encoder
    tokenizer: Tokenizer
    file: WeightFile | None

    @property
    def symbols(self) -> Mapping[str, int]:
        """What the encoder is, in the symbols of the records."""
        config = self.config
        return {
            "layers": config.layers,
            "hidden": config.hidden,
            "heads": config.heads,
            "weight_bytes": self.encoder.weight_bytes,
        }


def load_encoder(bundle: Bundle, settings: EngineSettings, options: EncoderOptions) -> Loaded:
    """Load the encoder of a bundle.

    Raises:
        BundleError: The files don't make an encoder, or not one that the options ask for.
    """
    config = read_config(bundle)
    loader = _Loader(bundle, settings, options, config)
    if options.engine == "onnx":
        tokenizer = read_tokenizer(bundle, config.vocab_tokens, types=2)
        rest = WeightFile(bundle, config.family) if "weights" in bundle.files else None
        return Loaded(config=config, encoder=loader.onnx(), tokenizer=tokenizer, file=rest)
    file = WeightFile(bundle, config.family)
    weights = encoder_weights(file, config)
    tokenizer = read_tokenizer(bundle, config.vocab_tokens, types=len(weights.types))
    encoder = loader.computed(weights)
    return Loaded(config=config, encoder=encoder, tokenizer=tokenizer, file=file)


class _Loader:
    """Makes the encoder that a bundle's options name."""

    def __init__(
        self,
        bundle: Bundle,
        settings: EngineSettings,
        options: EncoderOptions,
        config: EncoderConfig,
    ) -> None:
        self._bundle = bundle
        self._settings = settings
        self._options = options
        self._config = config
        self._device = torch.device(settings.device)
        if self._device.type == "cuda" and not torch.cuda.is_available():
            raise BundleError(
                f"the deployment asks for {settings.device}, and there is no CUDA device",
                param="device",
            )

    def onnx(self) -> Encoder:
        try:
            # Only bundles that ask for it need the library.
            from headpond_workloads.encoders.onnx_encoder import OnnxEncoder  # noqa: PLC0415
        except ImportError as error:
            raise BundleError(
                "engine: onnx needs ONNX Runtime; install onnxruntime", param=_ENGINE
            ) from error
        if self._options.quantization is not None:
            raise BundleError("a graph is quantized, or not, as it is", param=_QUANTIZATION)
        return OnnxEncoder(
            self._bundle.artifact("graph"),
            device=self._device,
            lanes=self._settings.threads,
            hidden=self._config.hidden,
        )

    def computed(self, weights: EncoderWeights) -> Encoder:
        options = self._options
        if options.engine == "torch" and options.quantization is not None:
            raise BundleError("quantization needs the native engine", param=_QUANTIZATION)
        if options.engine != "torch":
            try:
                return self._native(weights)
            except NativeUnavailable as reason:
                if options.engine == "native" or options.quantization is not None:
                    raise BundleError(f"the native engine: {reason}", param=_ENGINE) from reason
                logger.warning("computing with tensor operations: %s", reason)
        torch.set_num_threads(self._settings.threads)
        dtype = getattr(torch, self._bundle.manifest.execution.dtype)
        return TorchEncoder(self._config, weights, device=self._device, dtype=dtype)

    def _native(self, weights: EncoderWeights) -> Encoder:
        dtype, quantization = self._bundle.manifest.execution.dtype, self._options.quantization
        if self._device.type != "cpu":
            raise NativeUnavailable(f"the model is on {self._device.type}")
        if dtype not in _FORMATS:
            raise NativeUnavailable(f"its dtype is {dtype}")
        kind = _FORMATS[dtype] if quantization is None else Format.INT8
        packed = NativeWeights(self._config, weights, kind)
        torch.set_num_threads(1)  # each lane brings a thread of its own
        return NativeEncoder(
            packed,
            lanes=self._settings.threads,
            weight_bytes=weights.bytes(getattr(torch, dtype), quantization),
        )
