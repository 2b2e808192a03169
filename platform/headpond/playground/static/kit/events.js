// Server-sent events, read from the body of any answer; comments come too.

/** Yield `{ name, data, comment }` for each block of a stream; data is text. */
export async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (waiting + value).split(/\r?\n\r?\n/);
      waiting = blocks.pop();
      for (const block of blocks) yield parsed(block);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parsed(block) {
  const found = { name: "message", data: "", comment: "" };
  const data = [];
  for (const line of block.split(/\r?\n/)) {
    const [, field, value] = /^([^:]*):? ?(.*)$/.exec(line);
    if (field === "data") data.push(value);
    else if (field === "event") found.name = value;
    else if (field === "") found.comment = value;
  }
  found.data = data.join("\n");
  return found;
}
