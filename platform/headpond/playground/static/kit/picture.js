// Pictures that came as bytes: shown by addresses that are given back when they are replaced.

/** Show bytes in an image instead of what it shows. */
export function showBlob(image, blob) {
  const before = image.src;
  image.src = URL.createObjectURL(blob);
  if (before.startsWith("blob:")) {
    image.addEventListener("load", () => URL.revokeObjectURL(before), { once: true });
  }
}

/** Return base64 as bytes of a media type. */
export function blobOf(base64, type) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  return new Blob([bytes], { type });
}
