// A file, written down as it is heard: server-sent events of `/v1/audio/transcriptions`.

/** Yield the events of a file's transcription; throws what the server says is wrong. */
export async function* transcribe(platform, model, file) {
  const body = new FormData();
  body.append("model", model);
  body.append("stream", "true");
  body.append("file", file);
  const answer = await platform.fetch("v1/audio/transcriptions", { method: "POST", body });
  if (!answer.ok) throw new Error((await answer.json()).error.message);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    waiting += value;
    const frames = waiting.split("\n\n");
    waiting = frames.pop();
    for (const frame of frames) {
      const data = frame
        .split("\n")
        .filter((line) => line.startsWith("data: "))
        .map((line) => line.slice(6))
        .join("\n");
      if (!data || data === "[DONE]") continue;
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message);
      yield event;
    }
  }
}

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
