// Takes side by side: all run together, one is heard, so that switching keeps the place; all equally loud.
import { RATE } from "./sink.js";
import { ask, say } from "./page.js";
import { button, clock, element } from "./elements.js";

const PEAK_DBFS = -1;
const SWITCH_S = 0.01; // short enough to seem at once, long enough not to click

export const nameOf = (n) => "ABCD"[n];

// The loudness that all can have without one of them clipping, as in studio/audio/loudness.py.
export function gainsDb(takes) {
  const common = Math.min(...takes.map((take) => take.lufs + PEAK_DBFS - take.peak_dbfs));
  return takes.map((take) => common - take.lufs);
}

export class Comparison {
  // fail(error): tells that a take's sound did not come.
  constructor(root, fail) {
    this.root = root;
    this.fail = fail;
    this.audio = null; // of its own: resuming the player's would let a paused take speak on
    this.takes = [];
    this.buffers = new Map();
    this.running = null;
    this.at = 0;
    this.heard = 0;
    root.addEventListener("keydown", (event) => this.onKey(event));
  }

  show(takes) {
    this.pause();
    Object.assign(this, { takes, at: 0, heard: 0 });
    this.root.hidden = takes.length < 2;
    if (takes.length < 2) return this.root.replaceChildren();
    this.choices = takes.map((take, n) => element("button", { type: "button", class: "compare-choice", onclick: () => this.hear(n) },
      element("strong", {}, nameOf(n)), ` ${take.who} · ${take.title}`));
    this.play = button(say("takes.play"), () => this.toggle(), { class: "compare-play" });
    this.slider = element("input", { type: "range", min: 0, step: 0.01, value: 0, "aria-label": say("takes.position"), oninput: () => this.seek(Number(this.slider.value)) });
    this.time = element("span", { class: "compare-time" });
    this.root.replaceChildren(
      element("h2", {}, say("takes.compare_title")), element("p", {}, say("takes.compare_how")),
      element("div", { class: "compare-choices", role: "group", "aria-label": say("takes.compare_title") }, ...this.choices),
      element("div", { class: "compare-run" }, this.play, this.slider, this.time),
    );
    this.mark();
    this.draw();
  }

  onKey(event) {
    const n = "1234".indexOf(event.key);
    if (n >= 0 && n < this.takes.length) this.hear(n);
    else if (event.key === " " && event.target.tagName !== "BUTTON") this.toggle();
    else return;
    event.preventDefault();
  }

  get length() { return Math.max(0, ...this.takes.map((take) => take.seconds)); }

  get position() {
    if (!this.running) return this.at;
    return Math.min(this.length, this.running.from + this.audio.currentTime - this.running.since);
  }

  hear(n) {
    this.heard = n;
    for (const [i, gain] of (this.running?.gains ?? []).entries()) {
      gain.gain.setTargetAtTime(i === n ? this.running.levels[i] : 0, this.audio.currentTime, SWITCH_S / 3);
    }
    this.mark();
  }

  mark() {
    for (const [i, choice] of this.choices.entries()) choice.setAttribute("aria-pressed", String(i === this.heard));
    Object.assign(this.root.dataset, { heard: nameOf(this.heard), playing: String(Boolean(this.running)) });
    this.play.textContent = say(this.running ? "takes.pause" : "takes.play");
  }

  async bufferOf(take) {
    if (!this.buffers.has(take.id)) {
      const reply = await ask(`v1/audio/takes/${take.id}/audio`);
      this.buffers.set(take.id, await this.audio.decodeAudioData(await reply.arrayBuffer()));
    }
    return this.buffers.get(take.id);
  }

  toggle() { return this.running ? this.pause() : this.start(); }

  async start() {
    const audio = (this.audio ??= new AudioContext({ sampleRate: RATE }));
    audio.resume();
    const takes = this.takes;
    let buffers;
    try { buffers = await Promise.all(takes.map((take) => this.bufferOf(take))); } catch (error) { return this.fail(error); }
    if (takes !== this.takes || this.running) return;
    if (this.at >= this.length - 0.01) this.at = 0;
    const levels = gainsDb(takes).map((db) => 10 ** (db / 20));
    const since = audio.currentTime + 0.02; // one moment for all
    const gains = levels.map((level, i) => {
      const gain = new GainNode(audio, { gain: i === this.heard ? level : 0 });
      gain.connect(audio.destination);
      return gain;
    });
    const sources = buffers.map((buffer, i) => {
      const source = new AudioBufferSourceNode(audio, { buffer });
      source.connect(gains[i]);
      source.start(since, Math.min(this.at, buffer.duration));
      return source;
    });
    this.running = { sources, gains, levels, since, from: this.at };
    this.mark();
    const tick = () => {
      if (!this.running) return;
      if (this.position >= this.length) { this.pause(); this.at = 0; }
      this.draw();
      requestAnimationFrame(tick);
    };
    tick();
  }

  pause() {
    if (!this.running) return;
    this.at = this.position;
    for (const source of this.running.sources) source.stop();
    for (const gain of this.running.gains) gain.disconnect();
    this.running = null;
    this.mark();
  }

  seek(seconds) {
    const wasRunning = Boolean(this.running);
    this.pause();
    this.at = seconds;
    this.draw();
    if (wasRunning) this.start();
  }

  draw() {
    this.slider.max = this.length;
    this.slider.value = this.position;
    this.slider.setAttribute("aria-valuetext", clock(this.position));
    this.time.textContent = `${clock(this.position)} / ${clock(this.length)}`;
    this.root.dataset.position = this.position.toFixed(3);
  }
}
