// The same transcription as others would ask for it.

import { Raw, call, literal } from "../../kit/python.js";
import { curlForm, headpondClient, openaiClient } from "../../kit/samples.js";

/** Return the code that writes the same file down, by language. */
export function fileSamples(platform, path, model, name) {
  const open = `open(${literal(name)}, "rb")`;
  const create = (indent, file) =>
    call("client.audio.transcriptions.create", { model, file: new Raw(file) }, indent);
  return {
    curl: curlForm(platform, path, [["model", model], ["file", `@${name}`]]),
    OpenAI: `${openaiClient(platform)}said = ${create("", open)}\nprint(said.text)`,
    Headpond: [
      `${headpondClient(platform)}    said = ${create("    ", `${open}.read()`).replace("client.audio.", "client.")}`,
      "    print(said.text)",
    ].join("\n"),
  };
}

/** Return the code that listens as the microphone did, by language. */
export function liveSamples(platform, model, rateHz) {
  const start = openaiClient(platform)
    .replaceAll("OpenAI", "AsyncOpenAI")
    .replace("from openai", "import asyncio\nimport base64\nimport sys\n\nfrom openai")
    .replace("import os\n\nimport asyncio\nimport base64", "import asyncio\nimport base64\nimport os");
  const format = `{"type": "audio/pcm", "rate": ${rateHz}}`;
  return {
    OpenAI: `# Reads PCM16 of ${rateHz} Hz: arecord -f S16_LE -r ${rateHz} | python listen.py
${start}
async def send(connection):
    while sound := await asyncio.to_thread(sys.stdin.buffer.read, ${Math.round(rateHz / 5)}):
        audio = base64.b64encode(sound).decode()
        await connection.input_audio_buffer.append(audio=audio)

async def main():
    extra = {"intent": "transcription"}
    async with client.realtime.connect(model=${literal(model)}, extra_query=extra) as connection:
        audio = {"input": {"format": ${format}}}
        await connection.session.update(session={"type": "transcription", "audio": audio})
        sending = asyncio.create_task(send(connection))
        async for event in connection:
            if event.type.endswith("input_audio_transcription.completed"):
                print(event.transcript)

asyncio.run(main())`,
  };
}
