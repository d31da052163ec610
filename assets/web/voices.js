// The Voices tab: the library as a list to search, and one voice of it to hear, edit, delete and take along.
import { ask, askJson, element, loaded, say, sayIn } from "./page.js";
import { libraryChanged, onLibraryChange } from "./library_changes.js";
import { VoiceForm } from "./voice_form.js";

const SEARCH_PAUSE_MS = 150;

export async function mountVoices(root) {
  await loaded;
  sayIn(root);
  const library = new Library(root);
  await library.look();
  root.dataset.state = "ready";
}

class Library {
  constructor(root) {
    Object.assign(this, { voices: [], binned: [], tag: "", asked: 0 });
    this.part = (name) => root.querySelector(`[data-part=${name}]`);
    this.form = new VoiceForm(root, this);
    this.wire();
    onLibraryChange(() => this.look());
  }

  wire() {
    let typing = null;
    this.part("query").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(() => this.look(), SEARCH_PAUSE_MS); });
    this.part("file").addEventListener("change", () => this.showTaking());
    this.part("taking").addEventListener("submit", (event) => { event.preventDefault(); this.take(); });
    this.part("taking-not").addEventListener("click", () => this.endTaking());
    this.part("export-all").addEventListener("click", () => this.export([]));
    this.part("undo").addEventListener("click", () => this.restore(this.undoId));
  }

  // The list as the server has it now. An answer that was overtaken by a later question is dropped.
  async look() {
    const turn = ++this.asked;
    const query = new URLSearchParams({ q: this.part("query").value });
    try {
      const [found, binned] = await Promise.all([askJson(`v1/audio/voices?${query}`), askJson("v1/audio/voices?deleted=true")]);
      const seen = JSON.stringify([found, binned]);
      if (turn !== this.asked || seen === this.seen) return;
      Object.assign(this, { voices: found.data, binned: binned.data, seen });
    } catch (error) { this.tell(error.told ?? say("status.lost")); return; }
    this.show();
  }

  show() {
    this.showTags();
    const voices = this.voices.filter((v) => !this.tag || v.tags.includes(this.tag));
    const own = voices.filter((v) => v.origin !== "starter");
    this.part("list").replaceChildren(...own.map((v) => this.item(v)), ...voices.filter((v) => v.origin === "starter").map((v) => this.item(v)));
    const empty = voices.length ? (own.length || this.part("query").value || this.tag ? "" : "voices.empty_own") : "voices.empty_search";
    this.part("empty").hidden = !empty;
    this.part("empty").textContent = empty && say(empty);
    this.showBin();
    this.refresh();
  }

  // What the form shows follows the list, unless it holds edits that are not saved.
  refresh() {
    const { picked } = this.form;
    const fresh = picked && this.voices.find((v) => v.id === picked.id);
    if (fresh && !this.form.edited()) this.form.pick(fresh);
    else if (!fresh && !this.part("query").value) this.form.pick(null);
    this.mark();
  }

  showTags() {
    const tags = [...new Set([...this.voices.flatMap((v) => v.tags), ...(this.tag ? [this.tag] : [])])].sort((a, b) => a.localeCompare(b));
    this.part("tags").replaceChildren(...tags.map((tag) => element("button", {
      type: "button", "aria-pressed": String(tag === this.tag),
      onclick: () => { this.tag = tag === this.tag ? "" : tag; this.show(); },
    }, tag)));
  }

  showBin() {
    this.part("bin").hidden = !this.binned.length;
    this.part("bin-title").textContent = say("voices.bin", { count: this.binned.length });
    this.part("binned").replaceChildren(...this.binned.map((voice) => element("li", {},
      element("span", { class: "voice-name" }, voice.name),
      element("button", { type: "button", onclick: () => this.restore(voice.id) }, say("voices.restore")),
      element("button", { type: "button", class: "danger", onclick: () => this.forget(voice) }, say("voices.forget")))));
  }

  item(voice) {
    const facts = [voice.origin === "starter" ? say("page.starter") : null, voice.language, ...voice.tags.map((t) => `#${t}`)].filter(Boolean);
    return element("li", { "data-id": voice.id },
      element("button", { type: "button", class: "voice-pick", onclick: () => { this.form.pick(voice); this.mark(); this.part("title").focus(); } },
        element("span", { class: "voice-name" }, voice.label), element("span", { class: "facts" }, facts.join(" · "))));
  }

  mark() {
    for (const item of this.part("list").children) item.firstChild.setAttribute("aria-current", String(item.dataset.id === this.form.picked?.id));
  }

  async restore(id) {
    try {
      const back = await askJson(`v1/audio/voices/${id}/restore`, { method: "POST" });
      this.tell(say("voices.restored", { name: back.name }));
      libraryChanged();
    } catch (error) { this.tell(error.told ?? say("status.lost")); await this.look(); }
  }

  async forget(voice) {
    try {
      await ask(`v1/audio/voices/${voice.id}?forever=true`, { method: "DELETE" });
      this.tell(say("voices.forgotten", { name: voice.name }));
      libraryChanged();
    } catch (error) { this.tell(error.told ?? say("status.lost")); await this.look(); }
  }

  // Of no voices named, all but the starters.
  async export(voices) {
    try {
      const query = new URLSearchParams(voices.map(({ id }) => ["voice", id]));
      const blob = await (await ask(`v1/audio/voice-bundles?${query}`)).blob();
      const link = element("a", { href: URL.createObjectURL(blob), download: voices.length ? `${voices[0].name}.zip` : "voices.zip" });
      link.click();
      URL.revokeObjectURL(link.href);
    } catch (error) { this.tell(error.told ?? say("status.lost")); }
  }

  showTaking() {
    const [file] = this.part("file").files;
    if (!file) return;
    this.part("taking-file").textContent = say("voices.taking", { file: file.name });
    this.part("taking").hidden = false;
    this.part("taking-consent").checked = false;
    this.part("taking-consent").focus();
  }

  endTaking() {
    this.part("taking").hidden = true;
    this.part("file").value = "";
  }

  async take() {
    const [file] = this.part("file").files;
    const body = new FormData();
    body.append("bundle", file, "bundle");
    body.append("consent", this.part("taking-consent").checked ? say("voices.import_consent") : "");
    try {
      const taken = await askJson("v1/audio/voice-bundles", { method: "POST", body });
      this.endTaking();
      const names = taken.data.map((v) => v.name).join(", ");
      const present = taken.present.length ? " " + say("voices.present", { names: taken.present.join(", ") }) : "";
      this.tell((names ? say("voices.taken", { names }) : "") + present);
      libraryChanged();
    } catch (error) { this.tell(error.param === "consent" ? say("page.consent_missing") : error.told ?? say("status.lost")); }
  }

  tell(sentence, undoId = null) {
    this.part("told").textContent = sentence;
    this.undoId = undoId;
    this.part("undo").hidden = !undoId;
    if (undoId) this.part("undo").focus();
  }
}
