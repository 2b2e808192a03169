// What went wrong, in people's words, with what they can do about it.

const WORDS = {
  400: "The server can't do what was asked.",
  401: "This key is not known here.",
  403: "This key may not do that.",
  404: "There is no such thing here.",
  408: "That took longer than the time it was given.",
  413: "That is more than the server takes at once.",
  429: "You have reached the limit of your key.",
  500: "The server made a mistake; it is not your doing.",
  503: "The server is too busy, or still starting.",
};

/** A refusal of the server, or none of its answers at all. */
export class Problem extends Error {
  constructor(message, { status = 0, code = null, waitS = null } = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.waitS = waitS;
  }

  /** Read an answer that is no success. */
  static async of(answer) {
    const waitS = Number(answer.headers.get("retry-after")) || null;
    return Problem.from(answer.status, await answer.text(), waitS);
  }

  /** Make one of a status and the body that came with it. */
  static from(status, text, waitS = null) {
    let error = null;
    try {
      const body = JSON.parse(text);
      error = body.error ?? body; // Cohere's dialect has the message alone
    } catch {
      // Something before the server answered, in a form of its own.
    }
    const words = WORDS[status] ?? `The server answered with status ${status}.`;
    const said = typeof error === "string" ? error : error?.message;
    const wait = waitS ? ` Try again in ${waitS} s.` : "";
    const where = error?.param && !said?.startsWith(`${error.param}:`) ? `${error.param}: ` : "";
    const message = `${words} ${said ? where + said : ""}${wait}`.trim();
    return new Problem(message, { status, code: error?.code ?? null, waitS });
  }

  /** Return the error that a stream ended with. */
  static streamed(error) {
    return new Problem(`It broke off: ${error.message}`, { code: error.code });
  }
}

/** Return whatever was thrown in people's words; undefined where they stopped it themselves. */
export function told(error) {
  if (error.name === "AbortError") return undefined;
  if (error instanceof TypeError && /fetch|network/i.test(error.message)) {
    return "The server can't be reached. Is it still running?";
  }
  if (error instanceof SyntaxError) return `This is not JSON: ${error.message}`;
  return error.message;
}
