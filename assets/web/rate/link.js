// The line to the studio: nothing that a rater did is lost when it breaks, and what was set last is what is kept.
const RETRY_MS = [300, 600, 1200, 2500, 5000];
const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

export class Refusal extends Error {
  constructor(status, error) {
    super(error?.message ?? String(status));
    Object.assign(this, { status, code: error?.code, param: error?.param });
  }
}

export class Link {
  // onLost(lost): whether the studio is out of reach just now.
  constructor(base, language, onLost) {
    Object.assign(this, { base, language, onLost, draft: null, sending: null });
  }

  // Asks until there is an answer: a server that restarts is waited for. Raises Refusal for a reply of 4xx.
  async ask(path, body) {
    for (let tries = 0; ; tries += 1) {
      const reply = await this.once(path, body).catch(() => null);
      if (reply && reply.status < 500) {
        this.onLost(false);
        if (reply.ok) return reply;
        throw new Refusal(reply.status, (await reply.json().catch(() => ({}))).error);
      }
      this.onLost(true);
      await pause(RETRY_MS[Math.min(tries, RETRY_MS.length - 1)]);
    }
  }

  once(path, body) {
    const headers = { "Accept-Language": this.language() };
    if (body === undefined) return fetch(new URL(path, this.base), { headers, credentials: "same-origin", cache: "no-store" });
    return fetch(new URL(path, this.base), {
      method: "POST", body: JSON.stringify(body), headers: { ...headers, "Content-Type": "application/json" }, credentials: "same-origin",
    });
  }

  async json(path, body) { return (await this.ask(path, body)).json(); }

  async bytes(path) { return (await this.ask(path)).arrayBuffer(); }

  // Keeps what is set so far; while one is on its way only the newest waits.
  keep(draft) {
    this.draft = draft;
    this.sending ??= this.flush();
  }

  async flush() {
    while (this.draft) {
      const draft = this.draft;
      this.draft = null;
      await this.ask("draft", draft).catch(() => {});
    }
    this.sending = null;
  }

  forgetDraft() { this.draft = null; }
}
