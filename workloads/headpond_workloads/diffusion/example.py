"""A red ring on black, 32 by 32 pixels, for the OpenAPI document and the demo."""

from __future__ import annotations

RING = (
    "UklGRt4AAABXRUJQVlA4INIAAABQBgCdASogACAAPrVOnkunJCKhqA1Q4BaJbACxJUFQF7yy0k2jBaNB5mUJUnuH6z"
    "mps5t9draUeALdoAD+/vYiBjgj3kEsKHon92Qqkd+n/Ix+hlX181naSsVh5zvQcl04mPJ13c9iT2v92b9jvkSuuwCT"
    "txhtim7LQQ0B1UqS1xhjNkvFW9t2e6Eqbt8j+bJvwj/SqTtniBE6xlxxBfs3Dvcg2/gNGPu9pGefKLJpgdZg5d87n2"
    "Wi7SioW/CdFIG0HPfpZ1PWLeGo/YDzs0kc7gA="
)
"""The file, a WEBP, in base64."""
