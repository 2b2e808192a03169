// The shape of a file's sound.

/** Return the peaks of a file in so many parts; empty where the browser can't decode it. */
export async function peaksOf(file, parts) {
  try {
    const context = new OfflineAudioContext(1, 1, 8000);
    const sound = await context.decodeAudioData(await file.arrayBuffer());
    const samples = sound.getChannelData(0);
    const length = Math.max(1, Math.floor(samples.length / parts));
    return Array.from({ length: Math.min(parts, samples.length) }, (_, part) => {
      let peak = 0;
      for (const sample of samples.subarray(part * length, (part + 1) * length)) {
        peak = Math.max(peak, Math.abs(sample));
      }
      return peak;
    });
  } catch {
    return [];
  }
}
