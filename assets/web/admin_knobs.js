// The settings of the Admin tab: fields made from /admin/knobs, previewed and applied; presets and the log of changes.
import { ask, base, say } from "./page.js";
import { element, table } from "./elements.js";

const LASTING = ["idle", "failed", "asleep"];

export class Knobs {
  constructor(part, failed) {
    Object.assign(this, { part, failed, known: new Map(), phase: "idle" });
    const on = (name, does) => part(name).addEventListener("click", () => this.guarded(does));
    on("preview", () => this.preview());
    on("apply", () => this.apply());
    on("save-preset", () => this.savePreset());
    const ofLm = (name, does) => part(name).addEventListener("click", () => this.guarded(does, "lm-error"));
    ofLm("forget", async () => { await ask("admin/lm/forget-prompts", { method: "POST" }); part("lm-told").textContent = say("admin.page.forgotten"); });
    ofLm("sleep", async () => { await ask("admin/lm/sleep", { method: "POST" }); this.waiting = true; await this.follow(); });
    ofLm("wake", async () => { await ask("admin/lm/wake", { method: "POST" }); this.waiting = true; await this.follow(); });
    part("presets").addEventListener("change", () => this.usePreset());
    part("import").addEventListener("change", () => this.guarded(() => this.readFile()));
    part("export").href = new URL("admin/export?form=toml", base);
    part("export-env").href = new URL("admin/export?form=env", base);
  }

  async guarded(does, place = "knob-error") {
    this.tell("", undefined, place);
    try { await does(); } catch (error) {
      this.failed(error);
      this.tell(error.told ?? say("status.lost"), error.param, place);
    }
  }

  tell(text, name, place = "knob-error") {
    this.part("lm-told").textContent = "";
    this.part(place).textContent = text;
    this.part(place).hidden = !text;
    for (const field of this.fields()) field.removeAttribute("aria-invalid");
    const field = name && this.part("knobs").querySelector(`[name=${CSS.escape(name)}]`);
    if (field) { field.setAttribute("aria-invalid", "true"); field.focus(); }
  }

  fields() { return [...this.part("knobs").querySelectorAll("[name]")]; }

  async load() {
    const { knobs, phase } = await (await ask("admin/knobs")).json();
    this.known = new Map(knobs.map((knob) => [knob.name, knob]));
    const heads = ["name", "value", "range", "effect", "acts"].map((name) => say(`admin.page.${name}`));
    const groups = [...new Set(knobs.map((knob) => knob.group))];
    this.part("knobs").replaceChildren(...groups.flatMap((group) => [
      element("h3", {}, say(`admin.group.${group}`)),
      element("div", { class: "admin-scroll" }, table(heads, knobs.filter((knob) => knob.group === group).map((knob) => [
        knob.name, fieldOf(knob), rangeOf(knob), knob.effect, say(`admin.acts.${knob.acts}`),
      ]))),
    ]));
    this.showPhase(phase);
    await Promise.all([this.loadPresets(), this.loadLog()]);
  }

  changes() {
    const found = {};
    for (const field of this.fields()) {
      const knob = this.known.get(field.name);
      const value = read(field, knob);
      if (value !== knob.value) found[field.name] = value;
    }
    return found;
  }

  async preview() {
    const changes = this.changes();
    if (!Object.keys(changes).length) { this.part("plan").textContent = say("admin.page.unchanged"); return; }
    const [prompt_s, clip_s] = ["prompt-s", "clip-s"].map((name) => Number(this.part(name).value));
    const plan = await (await ask("admin/preview", { method: "POST", body: { changes, prompt_s, clip_s } })).json();
    const { before, after } = plan;
    const told = say("admin.page.would", {
      names: plan.names.join(", "), restart: say(plan.workers.length ? "admin.page.would_restart" : "admin.page.would_not"),
      before: before.kv_blocks, after: after.kv_blocks, streams_before: before.streams, streams_after: after.streams, bound: after.bound,
    });
    const would = say("admin.page.would_be", {
      flow: (after.flow_bytes / 1e6).toFixed(0), first_before: seconds(before.first_audio_s), first_after: seconds(after.first_audio_s),
      rate_before: number(before.audio_s_per_s), rate_after: number(after.audio_s_per_s), memory_before: megabytes(before.lm_mb), memory_after: megabytes(after.lm_mb),
    });
    this.part("plan").textContent = [told, would, after.fits ? "" : plan.reason || say("admin.page.does_not_fit")].join(" ").trim();
  }

  async apply() {
    const changes = this.changes();
    if (!Object.keys(changes).length) { this.part("plan").textContent = say("admin.page.unchanged"); return; }
    const running = this.part("abort").checked ? "abort" : "drain";
    await ask("admin/apply", { method: "POST", body: { changes, running, force: this.part("force").checked } });
    this.waiting = true;
    await this.follow();
  }

  // Called at each look: shows how a change goes, and what came of it.
  async follow() {
    if (!this.waiting) return;
    const { phase, reason } = await (await ask("admin/changes")).json();
    if (!this.waiting) return;  // another look was sooner: a second load would undo what was typed since
    const told = say(`admin.phase.${phase}`);
    this.part("plan").textContent = phase === "idle" && reason ? say("admin.page.rolled_back", { reason }) : told;
    if (this.showPhase(phase)) { this.waiting = false; await this.load(); }
  }

  // Buttons as the phase allows; whether it is one that lasts.
  showPhase(phase) {
    this.part("apply").disabled = !["idle", "failed"].includes(phase);
    this.part("sleep").hidden = phase === "asleep";
    this.part("wake").hidden = phase !== "asleep";
    if (phase === "asleep") this.part("lm-told").textContent = say("admin.phase.asleep");
    return LASTING.includes(phase);
  }

  async loadLog() {
    const { changes, phase } = await (await ask("admin/changes")).json();
    if (!LASTING.includes(phase)) this.waiting = true;  // begun on another page
    const heads = ["when", "who", "before", "after", "outcome", "told"].map((name) => say(`admin.page.${name}`));
    const rows = changes.map((change) => [
      new Date(1000 * change.at_s).toLocaleString(), change.who, settingsOf(change.before), settingsOf(change.after),
      `${say(`admin.outcome.${change.outcome}`)} ${change.reason}`, against(change),
    ]);
    this.part("log").replaceChildren(rows.length ? table(heads, rows) : "–");
  }

  async loadPresets() {
    this.presets = await (await ask("admin/presets")).json();
    const options = ["", ...Object.keys(this.presets)].map((name) => new Option(name || say("admin.page.load"), name));
    this.part("presets").replaceChildren(...options);
  }

  async savePreset() {
    const field = this.part("preset-name"), name = field.value.trim();
    if (!name) { field.focus(); return; }
    const settings = Object.fromEntries(this.fields().map((f) => [f.name, read(f, this.known.get(f.name))]));
    await ask(`admin/presets/${encodeURIComponent(name)}`, { method: "PUT", body: { settings } });
    field.value = "";
    await this.loadPresets();
  }

  usePreset() { this.fill(this.presets[this.part("presets").value] ?? {}); }

  fill(settings) {
    for (const field of this.fields()) if (field.name in settings) write(field, settings[field.name]);
  }

  // Into the fields only, as if it were typed; what cannot be taken is told by name, and fields that the file does not name stay.
  async readFile() {
    const chooser = this.part("import"), [file] = chooser.files;
    if (!file) return;
    const text = await file.text();
    chooser.value = "";  // so that the same file, mended, is read again
    const { values, refused } = await (await ask("admin/import", { method: "POST", body: { text } })).json();
    this.fill(values);
    const names = Object.keys(values).filter((name) => values[name] !== this.known.get(name).value).join(", ");
    const told = { file: file.name, count: Object.keys(values).length, names };
    this.part("plan").textContent = say(names ? "admin.page.imported" : "admin.page.imported_same", told);
    const why = Object.values(refused);
    if (why.length) this.tell([say("admin.page.import_refused", told), ...why].join("\n"));
  }
}

const known = (shown) => (value) => (value === null || value === undefined ? "–" : shown(value));
const seconds = known((value) => `${value.toFixed(2)} s`), number = known((value) => value.toFixed(2));
const megabytes = known((value) => `${value.toFixed(0)} MB`), whole = known(String);
const FIGURES = { kv_blocks: whole, kv_tokens: whole, lm_mb: megabytes, first_audio_s: seconds, audio_s_per_s: number, memory_mb: megabytes };

// What the planner said of a change, and what came of it.
function against({ predicted, found }) {
  const told = Object.entries(FIGURES).filter(([name]) => name in predicted);
  return told.map(([name, shown]) => `${shown(predicted[name])} / ${shown(found[name])}`).join("; ") || "–";
}

const settingsOf = (values) => Object.entries(values).map(([name, value]) => `${name} = ${value ?? "–"}`).join(", ");

function rangeOf({ least, most, unit, default: usual }) {
  const range = least === null || most === null ? "" : `${least} … ${most} `;
  return `${range}${unit} (${usual ?? "–"})`;
}

function fieldOf(knob) {
  let field;
  if (knob.choices) {
    field = document.createElement("select");
    field.append(...knob.choices.map((choice) => new Option(choice, choice)));
  } else {
    field = document.createElement("input");
    field.type = knob.kind === "bool" ? "checkbox" : knob.kind === "str" ? "text" : "number";
    if (field.type === "number") field.step = knob.step ?? (knob.kind === "int" ? 1 : "any");
  }
  field.name = knob.name;
  field.setAttribute("aria-label", knob.name);
  write(field, knob.value);
  return field;
}

function write(field, value) {
  if (field.type === "checkbox") field.checked = Boolean(value);
  else field.value = value ?? "";
}

function read(field, knob) {
  if (field.type === "checkbox") return field.checked;
  if (field.type === "number") return field.value === "" ? null : Number(field.value);
  return knob.choices || field.value ? field.value : null;
}
