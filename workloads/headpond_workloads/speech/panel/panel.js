// Speech: the microphone and files, written down while they are heard.

import { Microphone } from "./microphone.js";
import { peaksOf, transcribe } from "./recording.js";
import { Session } from "./session.js";
import { Wave } from "./wave.js";

const ITEM = "conversation.item.input_audio_transcription";

const VIEW = `
  <form>
    <label>Model <select class="model"></select></label>
    <button type="button" class="toggle primary">Start microphone</button>
    <label>Or a file <input type="file" class="pick" accept="audio/*,video/*"></label>
  </form>
  <canvas class="wave" role="img" aria-label="Waveform of the sound"></canvas>
  <p class="state" role="status">Nothing is recorded.</p>
  <p class="error" role="alert"></p>
  <h2 id="speech-final">What was said</h2>
  <ol class="final" role="log" aria-live="polite" aria-labelledby="speech-final"></ol>
  <h2 id="speech-partial">Being said <span class="revisable">(may still change)</span></h2>
  <p class="partial" aria-labelledby="speech-partial"><span class="stable"></span><span
    class="revisable"></span></p>
`;

export async function mount(root, platform) {
  await styled(platform.asset("panel.css"));
  root.classList.add("speech");
  root.innerHTML = VIEW;
  new Panel(root, platform);
}

class Panel {
  #platform;
  #find;
  #wave;
  #microphone;
  #session;
  #item;

  constructor(root, platform) {
    this.#platform = platform;
    this.#find = (name) => root.querySelector(`.${name}`);
    this.#wave = new Wave(this.#find("wave"));
    for (const { id } of platform.models) this.#find("model").append(new Option(id));
    this.#find("toggle").addEventListener("click", () => this.#toggle());
    this.#find("pick").addEventListener("change", ({ target }) => this.#file(target));
    root.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
  }

  async #toggle() {
    const button = this.#find("toggle");
    button.disabled = true;
    try {
      if (this.#session) await this.#stop();
      else await this.#start();
    } catch (error) {
      this.#fail(error.message);
      await this.#release();
    }
    button.disabled = false;
  }

  async #start() {
    this.#fail("");
    this.#tell("Asking for the microphone…");
    this.#microphone = new Microphone();
    await this.#microphone.open(this.#platform.asset("capture.js"));
    this.#wave.show([]);
    const session = new Session(this.#platform, this.#model, this.#microphone.rateHz);
    this.#session = session;
    session.addEventListener("said", ({ detail }) => this.#said(detail));
    session.addEventListener("closed", ({ detail }) => {
      if (detail) this.#fail(`The session is over: ${detail}`);
      this.#release();
    });
    await session.connect();
    this.#microphone.start((pcm, peak) => {
      session.append(pcm);
      this.#wave.add(peak);
    });
    this.#pressed(true);
    this.#tell("Listening.");
  }

  async #stop() {
    this.#tell("Writing down the rest…");
    await this.#microphone?.close();
    await this.#session?.finish();
    await this.#release();
  }

  /** Let go of the microphone and the session, whatever became of them. */
  async #release() {
    this.#session?.close();
    this.#session = undefined;
    await this.#microphone?.close();
    this.#microphone = undefined;
    this.#partial("", "");
    this.#pressed(false);
    this.#tell("The microphone is off.");
  }

  async #file(input) {
    const [file] = input.files;
    if (!file) return;
    input.disabled = true;
    this.#fail("");
    this.#tell(`Hearing ${file.name}…`);
    peaksOf(file, this.#wave.room).then((peaks) => this.#wave.show(peaks));
    try {
      let text = "";
      for await (const event of transcribe(this.#platform, this.#model, file)) {
        if (event.type === "transcript.text.delta") this.#partial((text += event.delta), "");
        else if (event.type === "transcript.text.done") this.#finish(file.name, event.text);
      }
      this.#tell(`${file.name} is written down.`);
    } catch (error) {
      this.#partial("", "");
      this.#fail(error.message);
      this.#tell(`${file.name} could not be written down.`);
    }
    input.value = "";
    input.disabled = false;
  }

  #said(event) {
    switch (event.type) {
      case "input_audio_buffer.speech_started":
        this.#tell("Hearing speech.");
        break;
      case "input_audio_buffer.speech_stopped":
        this.#tell("Listening.");
        break;
      case `${ITEM}.delta`:
        if (this.#item !== event.item_id) this.#partial("", "");
        this.#item = event.item_id;
        this.#tell("Hearing speech.");
        this.#partial(this.#find("stable").textContent + event.delta, event.revisable);
        break;
      case `${ITEM}.completed`:
        this.#finish(clock(event.audio_start_ms), event.transcript);
        break;
      case `${ITEM}.failed`:
        this.#partial("", "");
        break;
      case "transcription.behind":
        this.#tell(`The text is ${(event.lag_ms / 1000).toFixed(1)} s behind.`);
        break;
      case "error":
        // The last commit finds nothing where the last utterance has ended by itself.
        if (event.error.code === "input_audio_buffer_commit_empty") break;
        this.#fail(event.error.message);
        break;
    }
  }

  #finish(when, text) {
    this.#partial("", "");
    if (!text) return;
    const line = document.createElement("li");
    const time = document.createElement("time");
    time.textContent = when;
    const said = document.createElement("span");
    said.textContent = text;
    line.append(time, said);
    this.#find("final").append(line);
  }

  #partial(stable, revisable) {
    this.#find("stable").textContent = stable;
    this.#find("partial").querySelector(".revisable").textContent = revisable;
  }

  #pressed(on) {
    const button = this.#find("toggle");
    button.textContent = on ? "Stop microphone" : "Start microphone";
    this.#find("model").disabled = on;
    this.#find("pick").disabled = on;
  }

  #fail(reason) {
    this.#find("error").textContent = reason;
  }

  #tell(state) {
    const shown = this.#find("state");
    if (shown.textContent !== state) shown.textContent = state; // said aloud at each change
  }

  get #model() {
    return this.#find("model").value;
  }
}

/** Resolve when a style sheet is in force. */
function styled(href) {
  return new Promise((resolve, reject) => {
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = href;
    link.addEventListener("load", resolve);
    link.addEventListener("error", () => reject(new Error(`${href} can't be read`)));
    document.head.append(link);
  });
}

function clock(ms) {
  const seconds = Math.floor(ms / 1000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}
