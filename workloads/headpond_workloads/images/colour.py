"""Colour spaces: from a picture's own, as its ICC profile describes it, to sRGB."""

from __future__ import annotations

import io

from PIL import Image, ImageCms

_SPACES = {"L": "GRAY", "RGB": "RGB", "CMYK": "CMYK"}
"""What a profile calls the colour space of each of Pillow's modes."""

_MOST_PROFILE_BYTES = 4 * 2**20
_BROKEN = (ImageCms.PyCMSError, OSError, ValueError, TypeError)


def to_srgb(image: Image.Image, profile: object) -> Image.Image:
    """Return a picture in mode `RGB`, in sRGB as far as its profile allows.

    Args:
        image: In mode `L`, `RGB` or `CMYK`.
        profile: The bytes of its ICC profile, if any. One that can't be read, is larger than
            4 MiB, or is for another colour space, counts as none.
    """
    if isinstance(profile, bytes) and len(profile) <= _MOST_PROFILE_BYTES:
        try:
            converted = _converted(image, profile)
        except _BROKEN:
            converted = None
        if converted is not None:
            return converted
    return in_mode(image, "RGB")


def in_mode(image: Image.Image, mode: str) -> Image.Image:
    """Return a picture in a mode, plainly converted; the same one when it is in it already."""
    return image if image.mode == mode else image.convert(mode)


def _converted(image: Image.Image, profile: bytes) -> Image.Image | None:
    """Convert by the profile; None where that is no use."""
    own = ImageCms.ImageCmsProfile(io.BytesIO(profile))
    space = own.profile.xcolor_space.strip()
    described = own.profile.profile_description or ""
    if space != _SPACES[image.mode] or (space == "RGB" and "sRGB" in described):
        return None
    srgb = ImageCms.createProfile("sRGB")
    return ImageCms.profileToProfile(image, own, srgb, outputMode="RGB")
