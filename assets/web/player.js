// The player of the Studio tab: asks for PCM, plays it as it comes, draws it, and says how it went.
import { ask } from "./page.js";
import { RATE, openSink, audioContext } from "./sink.js";
import { wavBlob } from "./wav.js";
import { drawWave } from "./wave.js";

export class Player {
  constructor(root, base, say) {
    Object.assign(this, { root, base, say });
    this.part = (name) => root.querySelector(`[data-part=${name}]`);
    this.part("replay").addEventListener("click", () => this.replay());
    new ResizeObserver(() => this.draw()).observe(this.part("wave"));
    this.reset();
    this.setState("idle");
  }

  reset() {
    Object.assign(this, { samples: [], total: 0, played: 0, underruns: 0, firstMs: null, seed: null, sink: null, abort: null, marked: [] });
    const link = this.part("download");
    if (link.href) URL.revokeObjectURL(link.href);
    link.removeAttribute("href");
    link.hidden = true;
    this.part("replay").hidden = true;
  }

  setState(state, message = "") {
    this.state = state;
    this.root.dataset.state = state;
    this.part("status").textContent = message || this.say(`player.${state}`);
    this.part("status").setAttribute("role", state === "failed" ? "alert" : "status");
    this.showFigures();
  }

  showFigures() {
    const parts = [];
    if (this.firstMs !== null) parts.push(this.say("player.first_sound", { seconds: (this.firstMs / 1000).toFixed(2) }));
    if (this.total) parts.push(this.say("player.length", { seconds: (this.total / RATE).toFixed(1) }));
    if (this.firstMs !== null) parts.push(this.say("player.underruns", { count: this.underruns }));
    if (this.seed !== null) parts.push(this.say("player.seed", { seed: this.seed }));
    this.part("figures").textContent = parts.join(" · ");
    Object.assign(this.root.dataset, {
      firstMs: this.firstMs ?? "", underruns: this.underruns, playedMs: Math.round((this.played / RATE) * 1000),
      totalMs: Math.round((this.total / RATE) * 1000),
    });
    this.draw();
  }

  draw() { drawWave(this.part("wave"), this.samples, this.total, this.played, this.marked); }

  // Where a check of the take found something: [{ start_s, end_s, severity: "amber" | "red" }]; a new take has none.
  marks(found) {
    this.marked = found;
    this.draw();
  }

  // body: the JSON of POST /v1/audio/speech; prepare: work before it that gives more of the body (a clip becomes a voice);
  // refused(error): shows an error at its field and says whether it could, so that it is not told twice.
  async play(body, prepare, refused) {
    this.stop();
    this.reset();
    const asked = performance.now();
    const abort = (this.abort = new AbortController());
    audioContext().resume();
    this.setState("asking");
    try {
      Object.assign(body, await prepare(abort.signal));
      const reply = await ask("v1/audio/speech", { method: "POST", signal: abort.signal, body: { ...body, response_format: "pcm" } });
      this.seed = reply.headers.get("X-Seed");
      this.takeId = reply.headers.get("X-Request-Id");
      await this.listen(reply, asked, abort);
    } catch (error) {
      if (abort !== this.abort) return;
      this.sink?.stop();
      if (error.name === "AbortError") this.finish("stopped");
      else if (refused(error)) this.finish("refused");
      else this.finish("failed", error.told ?? await this.whyBroken());
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

  async listen(reply, asked, abort) {
    const prebufferMs = Number(reply.headers.get("X-Prebuffer-Ms") ?? 300);
    const sink = (this.sink = await openSink(this.base, prebufferMs, {
      first: () => { if (sink === this.sink) { this.firstMs = performance.now() - asked; this.setState("playing"); } },
      underruns: (count) => { if (sink === this.sink) { this.underruns = count; this.showFigures(); } },
      position: (samples) => { if (sink === this.sink) { this.played = samples; this.showFigures(); } },
      done: () => { if (sink === this.sink) this.finish("done"); },
    }));
    const reader = reply.body.getReader();
    let odd = new Uint8Array(0);
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      if (abort !== this.abort) return;
      const bytes = new Uint8Array(odd.length + value.length);
      bytes.set(odd);
      bytes.set(value, odd.length);
      const even = bytes.length & ~1;
      odd = bytes.slice(even);
      const samples = new Int16Array(bytes.buffer.slice(0, even));
      this.samples.push(samples);
      this.total += samples.length;
      sink.push(samples);
      this.showFigures();
    }
    sink.end();
  }

  finish(state, message = "") {
    this.abort = null;
    if (state === "done") this.played = this.total;
    const link = this.part("download");
    if (this.total && link.hidden) {   // once a take: a stopped replay is no new one
      link.href = URL.createObjectURL(wavBlob(this.samples, this.total, RATE));
      link.hidden = false;
      this.part("replay").hidden = false;
      this.report();
    }
    this.setState(state, message);
    this.onEnd?.();
  }

  stop() {
    if (!this.abort && !this.sink) return;
    const busy = ["asking", "playing"].includes(this.state);
    this.abort?.abort();
    this.abort = null;
    this.sink?.stop();
    this.sink = null;
    if (busy) this.finish("stopped");
  }

  async replay() {
    if (!this.total) return;
    this.stop();
    this.played = 0;
    const sink = (this.sink = await openSink(this.base, 0, {
      first: () => this.setState("playing"),
      underruns: () => {},
      position: (samples) => { if (sink === this.sink) { this.played = samples; this.showFigures(); } },
      done: () => { if (sink === this.sink) { this.sink = null; this.played = this.total; this.setState("done"); } },
    }));
    for (const samples of this.samples) sink.push(samples);
    sink.end();
  }

  report() {
    const body = { underruns: this.underruns, first_sound_ms: this.firstMs ?? 0, played_ms: (this.played / RATE) * 1000 };
    fetch(new URL("player/report", this.base), {
      method: "POST", credentials: "same-origin", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), keepalive: true,
    }).catch(() => {});
  }
}
