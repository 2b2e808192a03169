// A waveform: one bar for each peak, the newest at the right.

const BAR = 3;

export class Wave {
  #canvas;
  #peaks = [];

  constructor(canvas) {
    this.#canvas = canvas;
    new ResizeObserver(() => this.#draw()).observe(canvas);
    document.addEventListener("themechange", () => this.#draw());
  }

  /** How many peaks it shows. */
  get room() {
    return Math.max(1, Math.floor(this.#canvas.clientWidth / BAR));
  }

  /** Show these peaks, from 0 to 1, instead of what it shows. */
  show(peaks) {
    this.#peaks = peaks;
    this.#draw();
  }

  /** Show one more. */
  add(peak) {
    this.#peaks.push(peak);
    this.#peaks.splice(0, this.#peaks.length - this.room);
    this.#draw();
  }

  #draw() {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    const scale = devicePixelRatio;
    this.#canvas.width = width * scale;
    this.#canvas.height = height * scale;
    const context = this.#canvas.getContext("2d");
    context.scale(scale, scale);
    context.fillStyle = getComputedStyle(this.#canvas).color;
    const shown = this.#peaks.slice(-this.room);
    shown.forEach((peak, at) => {
      const bar = Math.max(1, Math.sqrt(peak) * height); // ears hear ratios
      const left = width - (shown.length - at) * BAR;
      context.fillRect(left, (height - bar) / 2, BAR - 1, bar);
    });
  }
}
