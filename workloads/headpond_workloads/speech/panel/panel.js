// The panel of speech: the microphone, or a file, written down while it is heard.

import { field, modelChoice } from "../../kit/field.js";
import { dropZone } from "../../kit/drop.js";
import { make, styled } from "../../kit/make.js";
import { Notice } from "../../kit/notice.js";
import { Receipt } from "../../kit/receipt.js";
import { Microphone } from "./microphone.js";
import { peaksOf } from "./peaks.js";
import { fileSamples, liveSamples } from "./samples.js";
import { Session } from "./session.js";
import { Transcript } from "./transcript.js";
import { Wave } from "./wave.js";

const PATH = "v1/audio/transcriptions";
const EXAMPLE = "example.wav";
const ITEM = "conversation.item.input_audio_transcription";

export async function mount(root, platform) {
  await styled(platform.asset("panel.css"));
  root.classList.add("speech");
  new Panel(root, platform);
}

class Panel {
  #platform;
  #model;
  #toggle = make("button.primary.toggle", { type: "button" }, "Start microphone");
  #example = make("button", { type: "button" }, "Try the example");
  #drop;
  #canvas = make("canvas.wave", { role: "img", "aria-label": "Waveform of the sound" });
  #wave = new Wave(this.#canvas);
  #notice = new Notice("Nothing is recorded.");
  #transcript = new Transcript();
  #receipt;
  #microphone;
  #session;
  #item;

  constructor(root, platform) {
    this.#platform = platform;
    this.#model = modelChoice(platform);
    this.#receipt = new Receipt(platform.record.phases);
    this.#toggle.addEventListener("click", () => this.#turn());
    this.#example.addEventListener("click", () => this.#spoken());
    const save = make("a", { href: platform.asset(EXAMPLE), download: EXAMPLE }, "Save the example");
    this.#drop = dropZone({
      label: "Or drop a file, or choose one",
      accept: "audio/*,video/*",
      hint: "WAV, FLAC, OGG, MP3, M4A, WEBM and others",
      take: (file) => this.#file(file),
    });
    root.append(
      make(
        "div.stack",
        {},
        make("div.row", {}, field("Model", this.#model), this.#toggle, this.#example, save),
        this.#drop,
      ),
      this.#canvas,
      this.#notice.element,
      this.#transcript.element,
      this.#receipt.element,
    );
  }

  async #turn() {
    this.#toggle.disabled = true;
    try {
      if (this.#session) await this.#stop();
      else await this.#start();
    } catch (error) {
      await this.#release();
      this.#notice.fail(error);
    }
    this.#toggle.disabled = false;
  }

  async #start() {
    this.#notice.say("Asking for the microphone…");
    this.#microphone = new Microphone();
    await this.#microphone.open(this.#platform.asset("capture.js"));
    this.#wave.show([]);
    const session = new Session(this.#platform, this.#model.value, this.#microphone.rateHz);
    this.#session = session;
    session.addEventListener("said", ({ detail }) => this.#said(detail));
    session.addEventListener("closed", async ({ detail }) => {
      await this.#release();
      if (detail) this.#notice.fail(new Error(`The session is over: ${detail}`));
    });
    await session.connect();
    this.#microphone.start((pcm, peak) => {
      session.append(pcm);
      this.#wave.add(peak);
    });
    this.#pressed(true);
    this.#notice.say("Listening.");
  }

  async #stop() {
    this.#notice.say("Writing down the rest…");
    const { rateHz } = this.#microphone;
    await this.#microphone.close();
    await this.#session?.finish();
    await this.#release();
    const codes = liveSamples(this.#platform, this.#model.value, rateHz);
    this.#receipt.show({}, codes, { over: "one WebSocket, /v1/realtime" });
  }

  /** Let go of the microphone and the session, whatever became of them. */
  async #release() {
    this.#session?.close();
    this.#session = undefined;
    await this.#microphone?.close();
    this.#microphone = undefined;
    this.#transcript.partial("");
    this.#pressed(false);
    this.#notice.say("The microphone is off.");
  }

  async #file(file) {
    this.#busy(true);
    this.#notice.say(`Hearing ${file.name}…`);
    peaksOf(file, this.#wave.room).then((peaks) => this.#wave.show(peaks));
    const body = new FormData();
    body.append("model", this.#model.value);
    body.append("stream", "true");
    body.append("file", file);
    try {
      const answer = await this.#platform.post(PATH, body);
      let text = "";
      for await (const event of answer.events()) {
        if (event.type === "transcript.text.delta") this.#transcript.partial((text += event.delta));
        else if (event.type === "transcript.text.done") this.#transcript.finish(file.name, event.text);
      }
      this.#notice.say(`${file.name} is written down.`);
      const model = body.get("model");
      this.#receipt.show(answer, fileSamples(this.#platform, PATH, model, file.name));
    } catch (error) {
      this.#transcript.partial("");
      this.#notice.fail(error, `${file.name} could not be written down.`);
    }
    this.#busy(false);
  }

  async #spoken() {
    try {
      const sound = await (await fetch(this.#platform.asset(EXAMPLE))).blob();
      await this.#file(new File([sound], EXAMPLE, { type: sound.type }));
    } catch (error) {
      this.#notice.fail(error);
    }
  }

  #said(event) {
    switch (event.type) {
      case "input_audio_buffer.speech_started":
        this.#notice.say("Hearing speech.");
        break;
      case "input_audio_buffer.speech_stopped":
        this.#notice.say("Listening.");
        break;
      case `${ITEM}.delta`: {
        const before = this.#item === event.item_id ? this.#transcript.stable : "";
        this.#item = event.item_id;
        this.#notice.say("Hearing speech.");
        this.#transcript.partial(before + event.delta, event.revisable);
        break;
      }
      case `${ITEM}.completed`:
        this.#transcript.finish(clock(event.audio_start_ms), event.transcript);
        break;
      case `${ITEM}.failed`:
        this.#transcript.partial("");
        break;
      case "transcription.behind":
        this.#notice.say(`The text is ${(event.lag_ms / 1000).toFixed(1)} s behind.`);
        break;
      case "error":
        // The last commit finds nothing where the last utterance has ended by itself.
        if (event.error.code === "input_audio_buffer_commit_empty") break;
        this.#notice.fail(new Error(event.error.message));
        break;
    }
  }

  #pressed(on) {
    this.#toggle.textContent = on ? "Stop microphone" : "Start microphone";
    this.#model.disabled = on;
    this.#files(on);
  }

  #busy(on) {
    this.#toggle.disabled = on;
    this.#files(on);
  }

  #files(disabled) {
    this.#example.disabled = disabled;
    this.#drop.querySelector("input").disabled = disabled;
  }
}

function clock(ms) {
  const seconds = Math.floor(ms / 1000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}
