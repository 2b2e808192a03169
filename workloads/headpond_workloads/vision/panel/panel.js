// The panel of vision: an image in, what it shows out, beside what the model saw of it.

import { field, modelChoice, number, numberOf } from "../../kit/field.js";
import { dropZone } from "../../kit/drop.js";
import { make, styled } from "../../kit/make.js";
import { Notice } from "../../kit/notice.js";
import { blobOf, showBlob } from "../../kit/picture.js";
import { Receipt } from "../../kit/receipt.js";
import { bars } from "./bars.js";
import { samples } from "./samples.js";

const PATH = "v1/images/classifications";
const EXAMPLE = "example.jpg";

export async function mount(root, platform) {
  await styled(platform.asset("panel.css"));
  root.classList.add("vision");
  new Panel(root, platform);
}

class Panel {
  #platform;
  #model;
  #top = number(5, { min: 1, max: 20 });
  #given = make("img", { alt: "The image as it was given" });
  #input = make("img", { alt: "The image as the model saw it" });
  #givenText = make("figcaption", {});
  #inputText = make("figcaption", {});
  #bars = make("div", {});
  #seen;
  #notice = new Notice();
  #receipt;

  constructor(root, platform) {
    this.#platform = platform;
    this.#model = modelChoice(platform);
    this.#receipt = new Receipt(platform.record.phases);
    const drop = dropZone({
      label: "Drop an image, choose one, or paste one",
      accept: "image/png,image/jpeg,image/webp,image/gif,image/bmp",
      hint: "PNG, JPEG, WEBP, GIF or BMP",
      take: (file) => this.#classify(file),
    });
    const example = make("button", { type: "button", click: () => this.#example() }, "Try the example");
    const save = make("a", { href: platform.asset(EXAMPLE), download: EXAMPLE }, "Save the example");
    this.#seen = make(
      "div.seen",
      { hidden: true },
      make(
        "div.images",
        {},
        make("figure", {}, this.#given, this.#givenText),
        make("figure", {}, this.#input, this.#inputText),
      ),
      this.#bars,
    );
    root.append(
      make(
        "div.stack",
        {},
        make("div.row", {}, field("Model", this.#model), field("Labels", this.#top), example, save),
        drop,
      ),
      this.#notice.element,
      this.#seen,
      this.#receipt.element,
    );
    document.addEventListener("paste", (event) => this.#pasted(event, root));
  }

  #pasted(event, root) {
    const [file] = event.clipboardData.files;
    if (file && root.checkVisibility()) this.#classify(file);
  }

  async #example() {
    const image = await (await fetch(this.#platform.asset(EXAMPLE))).blob();
    await this.#classify(new File([image], EXAMPLE, { type: image.type }));
  }

  async #classify(file) {
    const body = new FormData();
    body.append("model", this.#model.value);
    body.append("image", file);
    body.append("top_k", numberOf(this.#top) ?? 5);
    body.append("return_input", "true");
    this.#notice.say(`Looking at ${file.name}…`);
    try {
      const answer = await this.#platform.post(PATH, body);
      const [{ classes, input }] = (await answer.json()).data;
      await this.#show(file, classes, input);
      this.#notice.say(`Most likely: ${classes[0].label}.`);
      const asked = { model: body.get("model"), top_k: classes.length };
      this.#receipt.show(answer, samples(this.#platform, PATH, file.name, asked));
    } catch (error) {
      this.#notice.fail(error, `${file.name} could not be classified.`);
    }
  }

  async #show(file, classes, input) {
    this.#seen.hidden = false;
    showBlob(this.#given, file);
    showBlob(this.#input, blobOf(input.split(",")[1], "image/png"));
    this.#bars.replaceChildren(bars(classes));
    await Promise.all([this.#given.decode(), this.#input.decode()]);
    this.#givenText.textContent = `As given: ${size(this.#given)}`;
    this.#inputText.textContent = `As the model saw it: ${size(this.#input)}`;
  }
}

function size({ naturalWidth, naturalHeight }) {
  return `${naturalWidth} × ${naturalHeight}`;
}
