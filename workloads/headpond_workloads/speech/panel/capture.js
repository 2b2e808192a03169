// An AudioWorklet: sound as PCM16 in pieces of 40 ms, each with how loud it is.

class Capture extends AudioWorkletProcessor {
  #piece = new Int16Array(Math.round(sampleRate / 25));
  #used = 0;
  #peak = 0;
  #ended = false;

  constructor() {
    super();
    this.port.onmessage = () => {
      this.#send();
      this.#ended = true;
      this.port.postMessage({ ended: true });
    };
  }

  process([channels]) {
    const count = channels.length ? channels[0].length : 0;
    for (let at = 0; at < count; at += 1) {
      let sum = 0;
      for (const channel of channels) sum += channel[at];
      this.#add(sum / channels.length);
    }
    return !this.#ended;
  }

  #add(sample) {
    const clipped = Math.max(-1, Math.min(1, sample));
    this.#peak = Math.max(this.#peak, Math.abs(clipped));
    this.#piece[this.#used] = Math.round(clipped * 32767);
    this.#used += 1;
    if (this.#used === this.#piece.length) this.#send();
  }

  #send() {
    const pcm = this.#piece.slice(0, this.#used).buffer;
    this.port.postMessage({ pcm, peak: this.#peak }, [pcm]);
    this.#used = 0;
    this.#peak = 0;
  }
}

registerProcessor("capture", Capture);
