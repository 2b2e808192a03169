// The microphone as pieces of PCM16, at 24 kHz where the browser can, else at its own rate.

const RATE_HZ = 24000;
const WANTED = {
  audio: { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false },
};

export class Microphone {
  #stream;
  #context;
  #worklet;

  /** The rate of the pieces, once it is open. */
  get rateHz() {
    return this.#context.sampleRate;
  }

  /** Ask for the microphone; fails with a reason that people understand. */
  async open(moduleUrl) {
    if (!navigator.mediaDevices) {
      throw new Error("browsers give the microphone to https:// and to localhost only");
    }
    try {
      this.#stream = await navigator.mediaDevices.getUserMedia(WANTED);
    } catch (error) {
      const reasons = {
        NotAllowedError: "the browser was not allowed to use the microphone",
        NotFoundError: "there is no microphone",
        NotReadableError: "another program holds the microphone",
      };
      throw new Error(reasons[error.name] ?? error.message);
    }
    try {
      await this.#connect(new AudioContext({ sampleRate: RATE_HZ }), moduleUrl);
    } catch {
      // Firefox takes a microphone only at the rate that it has.
      await this.#context.close();
      await this.#connect(new AudioContext(), moduleUrl);
    }
  }

  /** Hand every piece, with its peak from 0 to 1, to `take`. */
  start(take) {
    this.#worklet.port.onmessage = ({ data }) => {
      if (data.pcm?.byteLength) take(data.pcm, data.peak);
    };
  }

  /** Stop, when the last piece was handed over. */
  async close() {
    const port = this.#worklet?.port;
    this.#worklet = undefined;
    if (port) {
      const take = port.onmessage;
      await new Promise((done) => {
        port.onmessage = (message) => {
          if (message.data.ended) done();
          else take?.(message);
        };
        port.postMessage("end");
        setTimeout(done, 500); // of a context that the browser has stopped
      });
    }
    for (const track of this.#stream?.getTracks() ?? []) track.stop();
    if (this.#context?.state !== "closed") await this.#context?.close();
  }

  async #connect(context, moduleUrl) {
    this.#context = context;
    await context.audioWorklet.addModule(moduleUrl);
    const worklet = new AudioWorkletNode(context, "capture", { numberOfOutputs: 0 });
    context.createMediaStreamSource(this.#stream).connect(worklet);
    this.#worklet = worklet;
    await context.resume();
  }
}
