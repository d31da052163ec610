// Takes of a condition, sentence by sentence: chosen from the person's own, kept in their order.
import { ask, say } from "../page.js";
import { button, element } from "../elements.js";

const titleOf = (take) => `${take.kind === "conversion" ? say("takes.converted") : take.text.slice(0, 60)} · ${take.voice.name} · ${say("takes.seconds", { seconds: take.seconds.toFixed(1) })}`;

// The takes that the person has, newest first.
export const ownTakes = async () => (await (await ask("v1/audio/takes")).json()).data;

export function takePicker(takes, given) {
  const list = element("ol", { class: "chosen-takes" });
  const more = element("select", { "aria-label": say("listen.take_add"), "data-part": "add-take", onchange: () => { add(more.value); more.value = ""; } },
    element("option", { value: "" }, say(takes.length ? "listen.take_add" : "listen.take_none")), ...takes.map((take) => element("option", { value: take.id }, titleOf(take))));
  function add(id) {
    const take = takes.find((one) => one.id === id);
    const item = element("li", { "data-take": id }, element("span", {}, take ? titleOf(take) : id),
      button("×", () => { item.remove(); more.focus(); }, { class: "remove", "aria-label": say("listen.take_remove") }));
    list.append(item);
  }
  for (const id of given ?? []) add(id);
  const node = element("div", { class: "takes-of" }, list, more);
  node.read = () => [...list.children].map((one) => one.dataset.take);
  return node;
}
