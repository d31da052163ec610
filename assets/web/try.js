// A sentence or a clip said in a voice, as a finished sound to play: for short ones, not for listening while it is made.
import { ask } from "./page.js";
import { RATE } from "./sink.js";
import { wavBlob } from "./wav.js";

const RETRIES = 5;

// body: the JSON of POST /v1/audio/speech. An audition is no take: nobody looks for it in a history.
export const trial = (body, signal) =>
  finished("v1/audio/speech", { ...body, response_format: "pcm", keep_take: false }, signal);

// body: of a route that answers with pcm. Waits for a place where all are taken; gives the address of a wav.
export async function finished(path, body, signal) {
  for (let left = RETRIES; ; left--) {
    try {
      const reply = await ask(path, { method: "POST", signal, body });
      const samples = new Int16Array(await reply.arrayBuffer());
      return URL.createObjectURL(wavBlob([samples], samples.length, RATE));
    } catch (error) {
      if (error.status !== 429 || !left) throw error;
      await pause((error.retryAfterS ?? 1) * 1000, signal);
    }
  }
}

function pause(ms, signal) {
  return new Promise((done, failed) => {
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", () => { clearTimeout(timer); failed(signal.reason); }, { once: true });
  });
}

// One sound at a time on the whole page.
document.addEventListener("play", ({ target }) => {
  for (const other of document.querySelectorAll("audio")) if (other !== target) other.pause();
}, true);
