"""G.711: the two telephone codes of 8 bits a sample, as tables (ITU-T G.711)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_FULL_SCALE = 32768.0
_BIAS = 0x84


def _table(linear: NDArray[np.int32]) -> NDArray[np.float32]:
    table = (linear / _FULL_SCALE).astype(np.float32)
    table.flags.writeable = False
    return table


def _ulaw() -> NDArray[np.float32]:
    code = ~np.arange(256, dtype=np.int32) & 0xFF
    exponent, mantissa = (code >> 4) & 7, code & 15
    magnitude = (((mantissa << 3) + _BIAS) << exponent) - _BIAS
    return _table(np.where(code & 0x80, -magnitude, magnitude))


def _alaw() -> NDArray[np.float32]:
    code = np.arange(256, dtype=np.int32) ^ 0x55
    exponent, mantissa = (code >> 4) & 7, code & 15
    low = (mantissa << 4) + 8
    magnitude = np.where(exponent == 0, low, (low + 0x100) << np.maximum(exponent - 1, 0))
    return _table(np.where(code & 0x80, magnitude, -magnitude))


ULAW = _ulaw()
"""The sample of each byte of mu-law, from -1 to 1."""

ALAW = _alaw()
"""The sample of each byte of A-law, from -1 to 1."""
