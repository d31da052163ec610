import { RATE } from "./sink.js";

// The waveform: peaks of what has come, the played part in the accent colour, what a check found behind it.
export function drawWave(canvas, chunks, total, played, marks = []) {
  const scale = window.devicePixelRatio || 1;
  const width = Math.round(canvas.clientWidth * scale);
  const height = Math.round(canvas.clientHeight * scale);
  if (!width || !height) return;
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  const style = getComputedStyle(canvas);
  const draw = canvas.getContext("2d");
  draw.clearRect(0, 0, width, height);
  draw.fillStyle = style.getPropertyValue("--wave-idle") || "#999";
  if (!total) { draw.fillRect(0, height / 2, width, scale); return; }
  const bar = 3 * scale, gap = scale, bars = Math.floor(width / (bar + gap));
  for (const { start_s, end_s, severity } of marks) {
    const left = ((start_s * RATE) / total) * width;
    draw.fillStyle = style.getPropertyValue(`--mark-${severity}`);
    draw.fillRect(left, 0, Math.max(bar, (((end_s - start_s) * RATE) / total) * width), height);
  }
  const peaks = peaksOf(chunks, total, bars);
  for (let i = 0; i < bars; i++) {
    const tall = Math.max(scale, peaks[i] * height * 0.95);
    draw.fillStyle = style.getPropertyValue(i / bars < played / total ? "--wave-played" : "--wave-idle");
    draw.fillRect(i * (bar + gap), (height - tall) / 2, bar, tall);
  }
}

function peaksOf(chunks, total, bars) {
  const peaks = new Float32Array(bars);
  let at = 0;
  for (const chunk of chunks) {
    for (let i = 0; i < chunk.length; i += 4) {
      const bar = Math.min(bars - 1, Math.floor(((at + i) / total) * bars));
      const level = Math.abs(chunk[i]) / 32768;
      if (level > peaks[bar]) peaks[bar] = level;
    }
    at += chunk.length;
  }
  return peaks;
}
