// The engine's state on the page: polls /health, quickly while it starts, rarely when it is ready, not at all when hidden.
// onState hears every answer. Gives a function that looks at once.
export function watchEngine(root, base, say, onState = () => {}) {
  const text = root.querySelector("[data-part=text]");
  const bar = root.querySelector("[data-part=bar]");
  let timer = null;
  async function look() {
    clearTimeout(timer);
    let pause = 5000;
    if (!document.hidden) {
      try {
        const reply = await fetch(new URL("health", base), { headers: { "Accept-Language": document.documentElement.lang || "en" } });
        const state = await reply.json();
        show(state);
        onState(state);
        if (state.status !== "ok") pause = 500;
      } catch {
        root.dataset.state = "lost";
        text.textContent = say("status.lost");
        pause = 1000;
      }
    }
    timer = setTimeout(look, pause);
  }
  function show(state) {
    const ready = state.status === "ok";
    root.dataset.state = ready ? "ready" : state.status === "failed" ? "failed" : "starting";
    const fraction = Math.min(...state.workers.map((w) => w.fraction));
    bar.value = ready ? 1 : fraction;
    bar.hidden = root.dataset.state !== "starting";
    if (ready) {
      text.textContent = say(state.waiting ? "status.ready_busy" : "status.ready", state);
      return;
    }
    const slow = state.workers.filter((w) => w.stage !== "stage.ready");
    const told = slow.map((w) => say("status.worker", { worker: say(`worker.${w.name}`), stage: w.text, reason: w.reason }));
    if (root.dataset.state === "starting") told.push(eta(state.eta_s));
    text.textContent = told.join(" · ");
  }
  function eta(seconds) {
    if (seconds < 120) return say("status.eta", { seconds: Math.max(1, Math.round(seconds)) });
    return say("status.eta_minutes", { minutes: Math.round(seconds / 60) });
  }
  document.addEventListener("visibilitychange", look);
  look();
  return look;
}
