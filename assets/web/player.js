// The player of the Studio tab: plays a job's sound as it comes, draws it, and says how it went.
import { Downloads } from "./downloads.js";
import { listenToKeys } from "./keys.js";
import { ask } from "./page.js";
import { watchPlace } from "./place.js";
import { RATE, openSink, audioContext } from "./sink.js";
import { beginJob, endJob, openSound } from "./transport.js";
import { drawWave } from "./wave.js";

const EMPTY = {
  job: null, samples: [], total: 0, played: 0, complete: false, underruns: 0, firstMs: null, sink: null, turn: null, abort: null,
  from: 0, marked: [], reported: false,
};

export class Player {
  constructor(root, base, say) {
    Object.assign(this, { root, base, say });
    this.part = (name) => root.querySelector(`[data-part=${name}]`);
    this.downloads = new Downloads(this.part("downloads"));
    this.part("replay").addEventListener("click", () => this.playFrom(0));
    this.part("pause").addEventListener("click", () => this.toggle());
    listenToKeys(root, this);
    new ResizeObserver(() => this.draw()).observe(this.part("wave"));
    this.reset();
    this.setState("idle");
  }

  reset() {
    Object.assign(this, structuredClone(EMPTY));
    this.downloads.clear();
    this.part("replay").hidden = true;
    delete this.root.dataset.firstBytesMs;
  }

  get seed() { return this.job?.seed ?? null; }

  setState(state, message = "") {
    this.state = state;
    this.root.dataset.state = state;
    this.part("status").textContent = message || this.say(`player.${state}`);
    this.part("status").setAttribute("role", state === "failed" ? "alert" : "status");
    const paused = state === "paused";
    this.part("pause").hidden = !paused && state !== "playing";
    this.part("pause-sign").textContent = paused ? "▶" : "‖";
    this.part("pause-word").textContent = this.say(paused ? "player.resume" : "player.pause");
    this.showFigures();
  }

  showFigures() {
    const parts = [];
    const told = (key, values) => parts.push(this.say(key, values));
    if (this.firstMs !== null) told("player.first_sound", { seconds: (this.firstMs / 1000).toFixed(2) });
    if (this.total) told("player.length", { seconds: (this.total / RATE).toFixed(1) });
    if (this.firstMs !== null) told("player.underruns", { count: this.underruns });
    if (this.seed !== null) told("player.seed", { seed: this.seed });
    if (this.job) told("player.quality", { quality: this.job.quality_reason });
    this.part("figures").textContent = parts.join(" · ");
    const ms = (samples) => Math.round((samples / RATE) * 1000);
    Object.assign(this.root.dataset, {
      firstMs: this.firstMs ?? "", underruns: this.underruns, playedMs: ms(this.played), totalMs: ms(this.total),
    });
    const wave = this.part("wave");
    wave.setAttribute("aria-valuemax", (this.total / RATE).toFixed(1));
    wave.setAttribute("aria-valuenow", (this.played / RATE).toFixed(1));
    wave.setAttribute("aria-valuetext", this.say("player.at", { at: (this.played / RATE).toFixed(1), of: (this.total / RATE).toFixed(1) }));
    this.draw();
  }

  draw() { drawWave(this.part("wave"), this.samples, this.total, this.played, this.marked); }

  // Where a check of the take found something: [{ start_s, end_s, severity: "amber" | "red" }]; a new take has none.
  marks(found) {
    this.marked = found;
    this.draw();
  }

  // request(signal): gives the body of a job; refused(error): shows an error at its field and says whether it could.
  play(request, refused, transport) {
    audioContext().resume(); // inside the click, so that the browser lets sound out
    return this.follow(async (signal) => beginJob(await request(signal)), refused, transport, true);
  }

  // A job that was begun before this page was loaded: its sound comes, and waits for somebody to press play.
  found(job, transport) { return this.follow(async () => job, () => false, transport, false); }

  async follow(begin, refused, transport, aloud) {
    this.stop();
    this.reset();
    const asked = performance.now();
    const abort = (this.abort = new AbortController());
    this.setState("asking");
    let endWatch = () => {};
    try {
      const job = await begin(abort.signal);
      if (abort.signal.aborted) { endJob(job.id).catch(() => {}); return; }
      this.job = job;
      this.onJob?.(job);
      endWatch = watchPlace(job.id, (sentence) => { if (this.state === "asking") this.setState("asking", sentence); });
      const sound = await openSound(job, transport, abort.signal);
      endWatch();
      await this.listen(sound, asked, abort, aloud);
    } catch (error) {
      if (abort !== this.abort) return;
      this.sink?.stop();
      if (error.name === "AbortError") this.finish("stopped");
      else if (refused(error)) this.finish("refused");
      else this.finish("failed", error.told ?? await this.whyBroken());
    } finally {
      endWatch();
    }
  }

  // A stream that ends early carries no reason; the engine's state does.
  async whyBroken() {
    try {
      const state = await (await fetch(new URL("health", this.base), { cache: "no-store" })).json();
      if (state.status !== "ok") return this.say("engine.dead", { seconds: Math.round(state.eta_s) });
    } catch { /* the server itself is gone */ }
    return this.say("player.broken");
  }

  async listen({ prebufferMs, pieces }, asked, abort, aloud) {
    if (aloud) await this.openAt(0, prebufferMs, () => { this.firstMs ??= performance.now() - asked; });
    for await (const samples of pieces) {
      if (abort !== this.abort) return;
      this.root.dataset.firstBytesMs ||= performance.now() - asked;
      this.samples.push(samples);
      this.total += samples.length;
      this.sink?.push(samples);
      if (!this.sink) { this.setState("found"); this.part("replay").hidden = false; }
      this.showFigures();
    }
    this.complete = true;
    this.sink?.end();
    if (!this.sink) this.finish("found");
  }

  // Begins to play what is here, from a sample on; what comes later follows.
  async openAt(from, prebufferMs, first = () => {}) {
    this.sink?.stop();
    const turn = (this.turn = {}); // another one, or stop, may come while the sink is opened
    const heardBefore = this.underruns;
    const ours = (act) => (value) => { if (sink === this.sink) { act(value); this.showFigures(); } };
    const sink = await openSink(this.base, prebufferMs, {
      first: ours(() => { first(); this.setState("playing"); }),
      underruns: ours((count) => { if (this.abort) this.underruns = heardBefore + count; }),
      position: ours((samples) => { this.played = from + samples; }),
      done: ours(() => { this.played = this.total; this.sink = null; this.finish("done"); }),
    });
    if (turn !== this.turn) return sink.stop();
    this.sink = sink;
    let skip = from;
    for (const samples of this.samples) {
      if (skip < samples.length) sink.push(samples.subarray(skip));
      skip = Math.max(0, skip - samples.length);
    }
    if (this.complete) sink.end();
  }

  finish(state, message = "") {
    this.abort = null;
    if (this.total && !this.reported) { // once a take: a stopped replay is no new one
      this.reported = true;
      this.downloads.offer(this.samples, this.total);
      if (this.complete && this.job) this.downloads.offerTake(this.job.id);
      if (this.firstMs !== null) this.report();
    }
    this.part("replay").hidden = !this.total;
    this.setState(state, message);
    this.onEnd?.(state);
  }

  stop() {
    this.turn = null;
    if (!this.abort && !this.sink) return;
    const busy = ["asking", "playing", "paused", "found"].includes(this.state);
    const job = this.abort && !this.complete ? this.job : null;
    this.sink?.stop(); // silent before anything else
    this.sink = null;
    this.abort?.abort();
    this.abort = null;
    if (job) endJob(job.id).catch(() => {}); // it has ended by itself, or the server is gone
    if (busy) this.finish("stopped");
  }

  toggle() {
    if (this.state === "playing") {
      audioContext().suspend();
      this.setState("paused");
    } else if (this.state === "paused") {
      audioContext().resume();
      this.setState("playing");
    } else if (this.total && this.state !== "asking") {
      this.playFrom(this.played < this.total ? this.played : 0);
    }
  }

  async playFrom(sample) {
    if (!this.total) return;
    this.played = sample;
    await this.openAt(sample, 0);
  }

  seek(seconds) { this.goTo(this.played + seconds * RATE); }

  seekTo(share) { this.goTo(share * this.total); }

  goTo(sample) {
    if (!this.total || this.state === "asking") return;
    this.playFrom(Math.round(Math.min(Math.max(0, sample), Math.max(0, this.total - RATE / 10))));
  }

  report() {
    const body = { underruns: this.underruns, first_sound_ms: this.firstMs ?? 0, played_ms: (this.played / RATE) * 1000 };
    ask("player/report", { method: "POST", body }).catch(() => {});
  }
}
