// One condition of the form: its name, and where its clips come from.
import { say } from "../page.js";
import { button, element } from "../elements.js";
import { settingsPicker } from "./settings.js";
import { takePicker } from "./take_picker.js";

const SOURCES = ["speech", "upload", "takes"];

// known: { voices, offered, takes }; changed and remove: what the form does then.
export function conditionRow(known, condition, changed, remove) {
  const source = condition?.source ?? { kind: "speech" };
  const name = element("input", { type: "text", maxLength: 60, value: condition?.name ?? "", "aria-label": say("listen.field.name"), placeholder: say("listen.field.name"), oninput: changed, "data-part": "name" });
  const choose = (label, values, value, titleOf, more = {}) => element("select", { "aria-label": label, ...more }, ...values.map((one) => element("option", { value: one, selected: one === value }, titleOf(one))));
  const kind = choose(say("listen.field.source"), SOURCES, source.kind, (one) => say(`listen.source.${one}`), { "data-part": "source" });
  const voice = choose(say("field.voice"), known.voices.map((one) => one.id), source.voice, (id) => known.voices.find((one) => one.id === id).name, { "data-part": "voice" });
  const settings = settingsPicker(known.offered, source);
  const takes = takePicker(known.takes, source.takes);
  const files = element("small", { "data-part": "files" });
  const show = () => {
    for (const one of [voice, settings]) one.hidden = kind.value !== "speech";
    takes.hidden = kind.value !== "takes";
    files.hidden = kind.value !== "upload";
  };
  const node = element("li", { class: "condition" }, name, kind, voice,
    button("×", () => remove(node), { "aria-label": say("listen.remove"), class: "remove" }), settings, takes, files);

  // The folder of an upload that holds its clips, and how many.
  node.take = (folder, clips) => {
    node.dataset.folder = folder;
    name.value ||= folder.slice(0, name.maxLength);
    kind.value = "upload";
    files.textContent = say("listen.of_folder", { folder, clips });
    show();
  };
  node.isBlank = () => !name.value.trim() && kind.value === "speech" && !Object.keys(settings.read().settings).length;
  node.arena = settings.withoutStudio;
  node.read = () => {
    const sources = {
      speech: () => ({ voice: voice.value, ...settings.read() }),
      upload: () => (node.dataset.folder ? { folder: node.dataset.folder } : {}),
      takes: () => ({ takes: takes.read() }),
    };
    return { name: name.value, source: { kind: kind.value, ...sources[kind.value]() } };
  };
  if (source.folder) node.dataset.folder = source.folder;
  files.textContent = say("listen.upload_later");
  kind.addEventListener("change", () => { show(); changed(); });
  show();
  return node;
}
