// An upload that says how far it is: `fetch` can't.

import { Problem } from "../kit/problem.js";

/** Upload a file for a batch and return it as the server has it; `onProgress` gets 0 to 1. */
export function upload(platform, file, onProgress) {
  return new Promise((resolve, reject) => {
    const body = new FormData();
    body.append("purpose", "batch");
    body.append("file", file);
    const request = new XMLHttpRequest();
    request.open("POST", platform.url("v1/files"));
    for (const [name, value] of platform.credentials()) request.setRequestHeader(name, value);
    request.upload.addEventListener("progress", ({ loaded, total }) => onProgress(loaded / total));
    request.addEventListener("load", () => {
      if (request.status < 300) resolve(JSON.parse(request.responseText));
      else reject(Problem.from(request.status, request.responseText));
    });
    request.addEventListener("error", () =>
      reject(new Problem("The server can't be reached. Is it still running?")),
    );
    request.send(body);
  });
}
