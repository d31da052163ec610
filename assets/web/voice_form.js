// One voice of the library: to hear, to edit, to try. What it changes it tells to the list that it belongs to.
import { clearErrors, inWords, markError, showOutputs } from "./form.js";
import { languageOptions } from "./languages.js";
import { libraryChanged, useInStudio } from "./library_changes.js";
import { askJson, base, say } from "./page.js";
import { trial } from "./try.js";

const FIELDS = ["name", "tags", "language", "notes", "audition"];
const DEFAULTS = { pitch: 0, speed: 1, seed: null, language: "", instructions: "" };
const IN_FORM = { language: "text_language" }; // beside the language that a voice is labelled with

export class VoiceForm {
  // library: tell(sentence, undoId) and export(voices) of the list.
  constructor(root, library) {
    Object.assign(this, { library, picked: null });
    this.part = (name) => root.querySelector(`[data-part=${name}]`);
    this.form = this.part("form");
    this.field = (name) => this.form.elements[name];
    this.default = (name) => this.field(IN_FORM[name] ?? name);
    this.wire();
    askJson("v1/models").then(({ data: [model] }) => {
      this.part("instructions").hidden = !model.modes.includes("instruct");
      this.part("text-language").hidden = model.languages.length < 2;
      this.field(IN_FORM.language).append(...languageOptions(model.languages));
      if (this.picked) this.default("language").value = this.picked.defaults.language ?? ""; // what was typed meanwhile stays
    });
  }

  wire() {
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.save(); });
    this.form.addEventListener("input", () => { showOutputs(this.form); this.part("save").disabled = !this.edited(); });
    this.part("try").addEventListener("click", () => this.try());
    this.part("use").addEventListener("click", () => useInStudio(this.picked.id));
    this.part("design").addEventListener("click", () => this.design());
    this.part("export").addEventListener("click", () => this.library.export([this.picked]));
    this.part("delete").addEventListener("click", () => this.delete());
  }

  pick(voice) {
    const other = voice?.id !== this.picked?.id;
    this.picked = voice;
    this.form.hidden = !voice;
    this.part("unpicked").hidden = Boolean(voice);
    this.part("unpicked").textContent = say("voices.unpicked");
    if (!voice) return;
    clearErrors(this.form);
    const starter = voice.origin === "starter", preset = voice.origin === "preset", hasClip = voice.clip_seconds > 0;
    for (const name of ["clip", "said", "design", "export"]) this.part(name).hidden = !hasClip;
    for (const field of this.form.elements) if (field.name && field.name !== "audition") field.disabled = preset;
    this.part("title").textContent = voice.label;
    const blend = voice.blend.map((p) => `${p.name} ${inWords("weight", p.weight * 100)}`).join(", ");
    this.part("facts").textContent = [hasClip ? say("page.clip_seconds", { seconds: voice.clip_seconds.toFixed(1) }) : say(preset ? "page.preset" : "page.no_clip"), blend && say("voices.blend", { parts: blend }), voice.details].filter(Boolean).join(" · ");
    this.part("said").textContent = voice.ref_text;
    if (other) {
      if (hasClip) this.part("clip").src = new URL(`v1/audio/voices/${voice.id}/clip`, base);
      this.part("tried").hidden = true;
    }
    for (const name of FIELDS) this.field(name).value = name === "tags" ? voice.tags.join(", ") : voice[name] ?? "";
    for (const [name, plain] of Object.entries(DEFAULTS)) this.default(name).value = voice.defaults[name] ?? plain ?? "";
    this.field("audition").placeholder = say("example.1");
    this.field("name").disabled = this.part("delete").hidden = starter || preset;
    showOutputs(this.form);
    this.part("save").disabled = true;
  }

  // What differs from the voice as it was read; two pages may so edit different fields. Null: nothing.
  edited() {
    if (!this.picked || this.form.hidden) return null;
    const changes = {};
    for (const name of FIELDS) {
      const value = this.field(name).value.trim();
      if (name === "tags") {
        const tags = value.split(/[,，]/).map((t) => t.trim()).filter(Boolean);
        if (tags.join() !== this.picked.tags.join()) changes.tags = tags;
      } else if (value !== (this.picked[name] ?? "")) changes[name] = value;
    }
    const defaults = this.defaults();
    if (JSON.stringify(sorted(defaults)) !== JSON.stringify(sorted(this.picked.defaults))) changes.defaults = defaults;
    return Object.keys(changes).length ? changes : null;
  }

  defaults() {
    const found = { ...this.picked.defaults };
    for (const [name, plain] of Object.entries(DEFAULTS)) {
      const field = this.default(name), written = field.value.trim();
      const options = [...(field.options ?? [])].map((option) => option.value);
      if (options.length && !options.includes(found[name] ?? plain)) continue; // not offered by this model, so left as it is
      const value = typeof plain === "string" ? written : written === "" ? null : Number(written);
      if (value === plain || value === "" || value === null) delete found[name];
      else found[name] = value;
    }
    return found;
  }

  async save() {
    const written = this.edited();
    if (!written) return;
    clearErrors(this.form);
    try {
      const saved = await askJson(`v1/audio/voices/${this.picked.id}`, { method: "PATCH", body: written });
      this.picked = { ...this.picked, ...saved };
      this.pick(this.picked);
      this.library.tell(say("voices.saved", { name: saved.name }));
      libraryChanged();
    } catch (error) { this.fail(error); }
  }

  async try() {
    const voice = this.picked, button = this.part("try"), audio = this.part("tried");
    clearErrors(this.form);
    button.disabled = true;
    try {
      const defaults = this.defaults();
      const input = this.field("audition").value.trim() || say("example.1");
      const language = this.default("language").value || "auto"; // whatever was saved before
      audio.src = await trial({ voice: voice.id, input, pitch: 0, speed: 1, ...defaults, language });
      if (voice.id !== this.picked?.id) return;
      audio.hidden = false;
      await audio.play();
    } catch (error) { this.fail({ ...error, param: error.param === "input" ? "audition" : error.param }); } finally { button.disabled = false; }
  }

  design() {
    window.designFrom = this.picked.id;
    window.dispatchEvent(new Event("design-from"));   // for a Design tab that is open already
    document.querySelector("#tab-design-button").click();
  }

  async delete() {
    const { id, name } = this.picked;
    try {
      const gone = await askJson(`v1/audio/voices/${id}`, { method: "DELETE" });
      this.pick(null);
      const still = gone.still_in.length ? " " + say("voices.still_in", { names: gone.still_in.join(", ") }) : "";
      this.library.tell(say("voices.deleted", { name }) + still, id);
      libraryChanged();
    } catch (error) { this.fail(error); }
  }

  fail(error) { if (!markError(this.form, error)) this.library.tell(error.told ?? say("status.lost")); }
}

const sorted = (object) => Object.entries(object).sort(([a], [b]) => a.localeCompare(b));
