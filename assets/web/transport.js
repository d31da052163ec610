// How a page gets its sound: a job is begun, and its PCM is read over HTTP or a WebSocket, as often as wanted.
import { ask, base } from "./page.js";

export const jobs = async () => (await (await ask("v1/jobs")).json()).data;
// Not to be broken off: whoever stops meanwhile must learn the job's name to end it.
export const beginJob = async (body) => (await ask("v1/jobs", { method: "POST", body })).json();
export const jobOf = async (id, signal) => (await ask(`v1/jobs/${id}`, { signal })).json();
export const endJob = (id) => ask(`v1/jobs/${id}`, { method: "DELETE" });

// { prebufferMs, pieces }: pieces gives Int16Arrays as they come. Throws what the server says, also in the middle.
export const openSound = (job, transport, signal) =>
  transport === "websocket" ? overSocket(job, signal) : overHttp(job, signal);

async function overHttp(job, signal) {
  const reply = await ask(`v1/jobs/${job.id}/audio`, { signal });
  return { prebufferMs: Number(reply.headers.get("X-Prebuffer-Ms") ?? 300), pieces: samplesOf(reply.body.getReader()) };
}

async function* samplesOf(reader) {
  let odd = new Uint8Array(0); // half of a sample at the end of a piece
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const bytes = new Uint8Array(odd.length + value.length);
    bytes.set(odd);
    bytes.set(value, odd.length);
    const even = bytes.length & ~1;
    odd = bytes.slice(even);
    if (even) yield new Int16Array(bytes.buffer, 0, even / 2);
  }
}

async function overSocket(job, signal) {
  const at = new URL(`v1/jobs/${job.id}/audio`, base);
  at.protocol = at.protocol.replace("http", "ws");
  const messages = messagesOf(new WebSocket(at), signal);
  const first = (await messages.next()).value;
  return { prebufferMs: first.prebuffer_ms, pieces: piecesOf(messages) };
}

async function* piecesOf(messages) {
  for await (const message of messages) {
    if (message instanceof ArrayBuffer) yield new Int16Array(message);
    else if (message.type === "audio.done") return;
  }
}

// What comes in, in order; ends with the socket, and throws where it ends too early.
async function* messagesOf(socket, signal) {
  socket.binaryType = "arraybuffer";
  const waiting = [];
  let wake = () => {};
  let closed = false;
  let done = false;
  const note = (event) => { waiting.push(event.data); wake(); };
  const end = () => { closed = true; wake(); };
  socket.addEventListener("message", note);
  socket.addEventListener("close", end);
  signal.addEventListener("abort", () => { socket.close(); end(); }, { once: true });
  try {
    for (;;) {
      signal.throwIfAborted();
      if (!waiting.length) {
        if (closed) { if (done) return; throw new Error("the socket closed before the end"); }
        await new Promise((resolve) => { wake = resolve; });
        continue;
      }
      const data = waiting.shift();
      const message = typeof data === "string" ? JSON.parse(data) : data;
      if (message.type === "error") throw Object.assign(new Error("refused"), { told: message.error.message, ...message.error });
      done = message.type === "audio.done";
      yield message;
    }
  } finally {
    socket.close();
  }
}
