// The Script tab: a play, a table or subtitles become lines; they are spoken on the server, which this only asks how it stands.
import { ask, base, errorOf, loaded, say, sayIn } from "./page.js";
import { clock, element, whenSeen } from "./elements.js";
import { LineRow, fillVoices } from "./script_line.js";

const LOOK_MS = 600; // while lines are being made
const EXPORTS = ["zip", "wav", "mp3", "flac", "srt", "vtt"];

export async function mountScript(root) {
  await loaded;
  sayIn(root);
  new ScriptTab(root);
}

class ScriptTab {
  constructor(root) {
    this.root = root;
    this.part = (name) => root.querySelector(`[data-part=${name}]`);
    Object.assign(this, { script: null, rows: new Map(), voices: [], audio: new Audio(), playing: null });
    this.audio.addEventListener("ended", () => this.silence());
    const on = (name, kind, act) => this.part(name).addEventListener(kind, act);
    on("pick", "change", () => this.open(this.part("pick").value));
    on("title", "change", () => this.send("", "PATCH", { title: this.part("title").value }).then(() => this.list()));
    on("delete", "click", () => this.delete());
    on("example", "click", () => { this.part("content").value = say("script.example"); this.part("content").focus(); });
    on("make", "click", () => this.make());
    on("file", "change", ({ target }) => { this.makeOf(target.files[0]); target.value = ""; });
    on("new", "dragover", (event) => event.preventDefault());
    on("new", "drop", (event) => { if (event.dataTransfer.files[0]) { event.preventDefault(); this.makeOf(event.dataTransfer.files[0]); } });
    on("content", "input", () => this.mistake(""));
    on("speak", "click", () => this.send("/speak", "POST", { lines: [] }));
    on("stop", "click", () => this.send("/stop", "POST"));
    on("hear", "click", () => this.hear());
    on("add", "click", () => this.send("/lines", "POST", { input: say("script.new_line"), voice: this.script.lines.at(-1)?.voice?.id ?? "" })
      .then(() => this.rows.get(this.script.lines.at(-1)?.id)?.focus()));
    on("matched", "change", () => this.showExports());
    whenSeen(root, () => this.seen());
  }

  async seen() {
    try {
      this.voices = (await (await ask("v1/audio/voices")).json()).data;
      fillVoices(this.part("voice"), this.voices, this.part("voice").value);
      await this.list();
      if (this.root.dataset.state === "loading") await this.open(this.part("pick").value);
      else if (this.script) await this.look();
    } catch (error) { this.fail(error); }
  }

  async list() {
    const { data } = await (await ask("v1/audio/scripts")).json();
    const known = [element("option", { value: "" }, say("script.new"))];
    for (const script of data) known.push(element("option", { value: script.id }, script.title || say("script.untitled", { lines: script.total })));
    this.part("pick").replaceChildren(...known);
    this.part("pick").value = this.script?.id ?? (this.root.dataset.state === "loading" ? data[0]?.id ?? "" : "");
  }

  async open(id) {
    this.silence();
    this.rows.clear();
    this.part("lines").replaceChildren();
    if (id) {
      try { this.show(await (await ask(`v1/audio/scripts/${id}`)).json()); } catch (error) { this.fail(error); }
    } else {
      this.script = null;
      this.root.dataset.state = "new";
    }
  }

  // One of the script's routes; gives and shows the script as it then is.
  async send(path, method, body) {
    const id = this.script.id;
    try {
      const script = await (await ask(`v1/audio/scripts/${id}${path}`, { method, body })).json();
      if (this.script?.id === id && script.lines) this.show(script);
      return true;
    } catch (error) {
      this.fail(error);
      return false;
    }
  }

  async make() {
    try {
      const body = { content: this.part("content").value, form: this.part("form").value, voice: this.part("voice").value };
      await this.made(await (await ask("v1/audio/scripts", { method: "POST", body })).json());
    } catch (error) { this.mistake(error.told ?? say("status.lost")); }
  }

  // The bytes as they are: the server knows how to read what spreadsheets write.
  async makeOf(file) {
    if (!file) return;
    try {
      const query = new URLSearchParams({ title: file.name.slice(0, 64), form: this.part("form").value, voice: this.part("voice").value });
      const reply = await fetch(new URL(`v1/audio/scripts?${query}`, base), {
        method: "POST", body: file, credentials: "same-origin",
        headers: { "Content-Type": "application/octet-stream", "Accept-Language": document.documentElement.lang || "en" },
      });
      if (!reply.ok) throw await errorOf(reply);
      await this.made(await reply.json());
    } catch (error) { this.mistake(error.told ?? say("status.lost")); }
  }

  async made(script) {
    this.mistake("");
    this.part("content").value = "";
    this.rows.clear();
    this.part("lines").replaceChildren();
    this.show(script);
    await this.list();
    this.part("speak").focus();
  }

  mistake(text) {
    const place = this.part("error");
    place.textContent = text;
    place.hidden = !text;
    this.part("content").toggleAttribute("aria-invalid", Boolean(text));
  }

  async delete() {
    if (!this.script || !confirm(say("script.delete_sure"))) return;
    if (!(await this.send("", "DELETE"))) return;
    await this.open("");
    await this.list();
    this.part("content").focus();
  }

  async look() {
    clearTimeout(this.timer);
    const id = this.script?.id;
    if (!id) return;
    try {
      const script = await (await ask(`v1/audio/scripts/${id}`)).json();
      if (this.script?.id === id) this.show(script);
    } catch (error) {
      this.fail(error);
      this.timer = setTimeout(() => this.look(), 5 * LOOK_MS);
    }
  }

  show(script) {
    this.script = script;
    this.root.dataset.state = "open";
    this.root.dataset.status = script.status;
    this.part("pick").value = script.id;
    if (document.activeElement !== this.part("title")) this.part("title").value = script.title;
    this.showLines();
    this.showCast();
    this.showProgress();
    this.showExports();
    clearTimeout(this.timer);
    if (script.status === "running") this.timer = setTimeout(() => this.look(), LOOK_MS);
  }

  showLines() {
    const ids = new Set(this.script.lines.map((line) => line.id));
    for (const [id, row] of this.rows) if (!ids.has(id)) { row.root.remove(); this.rows.delete(id); }
    let before = null;
    for (const line of this.script.lines) {
      if (!this.rows.has(line.id)) this.rows.set(line.id, new LineRow(this, line));
      const row = this.rows.get(line.id);
      row.show(line);
      const place = before ? before.nextElementSibling : this.part("lines").firstElementChild;
      if (place !== row.root) this.part("lines").insertBefore(row.root, place);
      before = row.root;
    }
  }

  showCast() {
    const speakers = [...new Set(this.script.lines.map((line) => line.speaker))].filter(Boolean);
    const voiceOf = (speaker) => this.script.lines.find((line) => line.speaker === speaker).voice?.id ?? "";
    const now = JSON.stringify([this.script.id, this.voices.length, speakers.map((speaker) => [speaker, voiceOf(speaker)])]);
    if (now === this.castNow) return;
    this.castNow = now;
    this.part("cast").hidden = !speakers.length;
    this.part("cast").replaceChildren(element("h2", {}, say("script.cast")), ...speakers.map((speaker) => {
      const pick = element("select", { onchange: () => this.send("/cast", "POST", { speaker, voice: pick.value }) });
      fillVoices(pick, this.voices, voiceOf(speaker));
      return element("label", {}, element("span", {}, speaker), pick);
    }));
  }

  showProgress() {
    const { total, counts, with_take: made, status } = this.script;
    const running = status === "running";
    this.part("progress").hidden = !running;
    this.part("progress").value = total ? (counts.done + counts.failed) / total : 0;
    this.part("stop").disabled = !running;
    this.part("speak").disabled = made === total;
    const parts = [say("script.made", { made, total })];
    if (running) parts.push(say("script.to_go", { running: counts.running, waiting: counts.waiting }));
    if (counts.failed) parts.push(say("script.failures", { failed: counts.failed }));
    const last = this.script.lines.findLast((line) => line.end_s !== null);
    if (last) parts.push(say("script.length", { length: clock(last.end_s) }));
    this.tell(parts.join(" · "));
  }

  tell(text) { if (this.part("said").textContent !== text) this.part("said").textContent = text; }

  fail(error) { this.part("said").textContent = error.told ?? say("status.lost"); }

  exportUrl(what) {
    const loudness = this.part("matched").checked ? "matched" : "as_made";
    return new URL(`v1/audio/scripts/${this.script.id}/export?what=${what}&loudness=${loudness}`, base);
  }

  showExports() {
    this.part("exports").hidden = this.part("hear").disabled = !this.script.with_take;
    this.part("files").replaceChildren(...EXPORTS.map((what) => element("a", { href: this.exportUrl(what), download: "", title: say(`script.export_${what}`) }, what.toUpperCase())));
  }

  hear() {
    const again = this.playing === this.part("hear");
    this.silence();
    if (!again) this.play(this.exportUrl("wav"), this.part("hear"), "script.hear");
  }

  // One sound at a time; its button stops it.
  play(source, pressed, key = "takes.play") {
    this.silence();
    Object.assign(this, { playing: pressed, playingKey: key });
    this.audio.src = source;
    this.audio.play().catch(() => { if (this.playing === pressed) { this.silence(); this.tell(say("status.lost")); } });
    pressed.textContent = say("takes.stop");
  }

  silence() {
    this.audio.pause();
    if (this.playing) this.playing.textContent = say(this.playingKey);
    this.playing = null;
  }
}

