// One session of `/v1/realtime`: numbered appends out, events in. It comes back by itself when
// its connection breaks, and sends again what a lost worker had not written down yet.

const PATH = "v1/realtime";
const QUIET_MS = 900;
const LONGEST_REST_MS = 15000;
const RETRY_MS = 500;
const MOST_KEPT = 3000; // of 40 ms: in a long silence nothing is acknowledged

export class Session extends EventTarget {
  #platform;
  #model;
  #rateHz;
  #socket;
  #id;
  #windowS = 0;
  #lastEvent = 0;
  #sequence = 0;
  #kept = [];
  #open = new Set();
  #heardAt = 0;
  #over = false;

  constructor(platform, model, rateHz) {
    super();
    this.#platform = platform;
    this.#model = model;
    this.#rateHz = rateHz;
  }

  /** Connect; resolves when the server takes sound. */
  async connect() {
    await this.#dial({ intent: "transcription", model: this.#model });
    if (this.#rateHz !== 24000) {
      const format = { type: "audio/pcm", rate: this.#rateHz };
      this.#send({
        type: "session.update",
        session: { type: "transcription", audio: { input: { format } } },
      });
    }
  }

  /** Send a piece of PCM16. */
  append(pcm) {
    this.#sequence += 1;
    const piece = { sequence: this.#sequence, audio: base64(pcm) };
    this.#kept.push(piece);
    if (this.#kept.length > MOST_KEPT) this.#kept.shift();
    this.#append(piece);
  }

  /** End the last utterance; resolves when all that was said has its final text. */
  async finish() {
    this.#send({ type: "input_audio_buffer.commit" });
    const began = performance.now();
    this.#heardAt = began;
    while (!this.#over && performance.now() - began < LONGEST_REST_MS) {
      const quiet = performance.now() - this.#heardAt > QUIET_MS;
      if (quiet && !this.#open.size) break;
      await rest(100);
    }
    this.close();
  }

  close() {
    this.#over = true;
    this.#socket?.close(1000);
  }

  #dial(query) {
    return new Promise((resolve, reject) => {
      const socket = this.#platform.socket(PATH, query, "realtime");
      this.#socket = socket;
      socket.addEventListener("message", ({ data }) => {
        const event = JSON.parse(data);
        this.#take(event);
        if (event.type === "session.created" || event.type === "session.resumed") resolve();
      });
      socket.addEventListener("close", (event) => {
        reject(new Error(event.reason || `the connection was refused (${event.code})`));
        if (socket === this.#socket && !this.#over && this.#id) this.#closed(event);
      });
    });
  }

  /** Come back to a session that was cut off, as long as the server keeps it. */
  async #closed({ code, reason }) {
    const until = performance.now() + this.#windowS * 1000;
    while (code === 1006 && !this.#over && performance.now() < until) {
      await rest(RETRY_MS);
      try {
        await this.#dial({ session: this.#id, last_event: this.#lastEvent });
        return;
      } catch {
        // The server may be back in a moment.
      }
    }
    if (this.#over) return;
    this.#over = true;
    const detail = code === 1000 ? null : reason || `the connection was lost (${code})`;
    this.dispatchEvent(new CustomEvent("closed", { detail }));
  }

  #take(event) {
    this.#heardAt = performance.now();
    this.#lastEvent = Number(event.event_id?.replace("event_", "")) || this.#lastEvent;
    switch (event.type) {
      case "session.created":
        this.#id = event.session.id;
        this.#windowS = event.session.resume.window_s;
        break;
      case "session.resumed":
        this.#repeat(event.next_sequence);
        break;
      case "input_audio_buffer.speech_started":
        this.#open.add(event.item_id);
        break;
      case "conversation.item.input_audio_transcription.completed":
      case "conversation.item.input_audio_transcription.failed":
        this.#open.delete(event.item_id);
        break;
      case "input_audio_buffer.acknowledged":
        this.#kept = this.#kept.filter((piece) => piece.sequence > event.sequence);
        break;
      case "error":
        if (event.error.resumable) this.#recover(event.error);
        break;
    }
    this.dispatchEvent(new CustomEvent("said", { detail: event }));
  }

  async #recover({ acknowledged_sequence: acknowledged, retry_after_ms: wait }) {
    await rest(wait ?? RETRY_MS);
    if (!this.#over) this.#repeat(acknowledged + 1);
  }

  #repeat(from) {
    // The server waits for that very number; clearing lets it go on with what is still kept.
    if (this.#kept[0]?.sequence > from) this.#send({ type: "input_audio_buffer.clear" });
    for (const piece of this.#kept) if (piece.sequence >= from) this.#append(piece);
  }

  #append({ sequence, audio }) {
    this.#send({ type: "input_audio_buffer.append", audio, sequence });
  }

  #send(event) {
    // What can't be sent now is sent when the session is resumed.
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(event));
  }
}

function base64(buffer) {
  return btoa(String.fromCharCode(...new Uint8Array(buffer)));
}

function rest(ms) {
  return new Promise((done) => setTimeout(done, ms));
}
