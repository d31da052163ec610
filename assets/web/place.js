// The place in line of a job that has made no sound yet: asked for again and again until somebody says stop.
import { say } from "./page.js";
import { jobOf } from "./transport.js";

const EVERY_MS = 500;

// tell: called with a sentence. Gives the function that ends it.
export function watchPlace(id, tell) {
  const ending = new AbortController();
  let timer = setTimeout(look, EVERY_MS);
  async function look() {
    try {
      const job = await jobOf(id, ending.signal);
      if (ending.signal.aborted || job.position === null) return;
      tell(sentenceOf(job));
      timer = setTimeout(look, EVERY_MS);
    } catch { /* the sound itself tells what is wrong */ }
  }
  return () => { ending.abort(); clearTimeout(timer); };
}

export function sentenceOf(job) {
  const seconds = Math.max(1, Math.round(job.eta_s));
  const error = job.eta_error_s === null ? "" : say("place.error", { seconds: job.eta_error_s.toFixed(1) });
  const key = job.position ? "place.waiting" : "place.next";
  return [say(key, { position: job.position, tokens: job.ahead_tokens, seconds }), error].filter(Boolean).join(" ");
}
