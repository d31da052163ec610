// The Listening tests tab: the owner's tests, a form for a new one, and a page for each.
import { ask, askJson, loaded, say, sayIn } from "../page.js";
import { button, element, whenSeen } from "../elements.js";
import { designForm } from "./form.js";
import { ownTakes } from "./take_picker.js";
import { testPage } from "./test.js";

export async function mountListening(root) {
  await loaded;
  sayIn(root);
  const place = root.querySelector("[data-part=place]");
  const said = root.querySelector("[data-part=said]");
  let leave = () => {};

  const tell = (text) => { said.textContent = text; };
  const fail = (error) => { if (error.name !== "AbortError") tell(error.told ?? say("status.lost")); };
  const show = (state, ...content) => {
    leave();
    leave = () => {};
    tell("");
    root.dataset.state = state;
    place.replaceChildren(...content);
  };

  async function list() {
    const { data } = await (await ask("v1/listening/tests")).json();
    const rows = data.map((test) => element("li", {},
      button(test.design.title, () => open(test.id), { class: "test-open", "data-test": test.id }),
      element("span", { class: "badge", "data-state": test.state }, say(`listen.state.${test.state}`)),
      element("span", { class: "about" }, say("listen.about", { kind: say(`listen.kind.${test.design.kind}`), ...test.counts }))));
    const file = element("input", { type: "file", accept: ".zip,.yaml,.yml,audio/*", multiple: true, "data-part": "import", onchange: () => take(file).catch(fail) });
    show(data.length ? "list" : "empty",
      element("p", {}, say("listen.intro")),
      element("div", { class: "tools" }, button(say("listen.new"), () => form().catch(fail), { class: "primary", "data-part": "new" }),
        element("label", { class: "file" }, element("span", {}, say("listen.import")), file)),
      element("ul", { class: "tests" }, ...rows), ownerKey());
  }

  async function take(file) {
    const body = new FormData();
    for (const one of file.files) body.append("files", one, one.name);
    open((await (await ask("v1/listening/import", { method: "POST", body })).json()).id);
  }

  // The key that another browser needs to see the same tests.
  function ownerKey() {
    const key = element("input", { type: "text", "aria-label": say("listen.key"), autocomplete: "off" });
    const opened = async (event) => {
      if (!event.target.open || key.value) return;
      key.value = (await (await ask("v1/listening/owner")).json()).key;
    };
    const enter = async () => {
      try {
        const { tests } = await (await ask("v1/listening/owner", { method: "POST", body: { key: key.value.trim() } })).json();
        await list();
        tell(say("listen.key_taken", { tests }));
      } catch (error) { fail(error); }
    };
    return element("details", { ontoggle: (event) => opened(event).catch(fail) }, element("summary", {}, say("listen.elsewhere")),
      element("p", {}, say("listen.key_how")), element("div", { class: "tools" }, key, button(say("listen.key_enter"), enter)));
  }

  async function form(test = null) {
    const [{ data: voices }, offered, takes] = await Promise.all([askJson("v1/audio/voices"), askJson("v1/listening/settings"), ownTakes()]);
    let kept = test; // refused files leave a draft, which the next try changes
    show("form", designForm({
      known: { voices, offered, takes }, design: test?.design, cancel: () => (kept ? open(kept.id) : list().catch(fail)),
      keep: async (design, files) => {
        const path = kept ? `v1/listening/tests/${kept.id}` : "v1/listening/tests";
        kept = await askJson(path, { method: kept ? "PUT" : "POST", body: design });
        if (files.length) {
          const body = new FormData();
          for (const [name, file] of files) body.append("files", file, name);
          await ask(`v1/listening/tests/${kept.id}/folders`, { method: "POST", body });
        }
        await open(kept.id);
      },
    }));
  }

  async function open(id) {
    try {
      const page = testPage({ id, tell, fail, edit: (test) => form(test).catch(fail), back: () => list().catch(fail) });
      await page.refresh();
      show("test", page.node);
      leave = page.leave;
    } catch (error) { fail(error); }
  }

  whenSeen(root, () => { if (["loading", "list", "empty"].includes(root.dataset.state)) list().catch(fail); });
}
