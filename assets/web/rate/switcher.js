// Plays several sounds of one length in lockstep: all run, one is heard. Switching fades within FADE_S at the same sample.
export const FADE_S = 0.012;

// 16-bit mono or stereo WAV with a 44-byte header, as the studio serves it.
export function bufferOf(context, bytes) {
  const view = new DataView(bytes);
  const channels = view.getUint16(22, true);
  const rate = view.getUint32(24, true);
  const values = new Int16Array(bytes, 44, (bytes.byteLength - 44) >> 1);
  const buffer = context.createBuffer(channels, values.length / channels, rate);
  for (let channel = 0; channel < channels; channel += 1) {
    const samples = buffer.getChannelData(channel);
    for (let n = 0; n < samples.length; n += 1) samples[n] = values[n * channels + channel] / 32767;
  }
  return buffer;
}

export class Switcher {
  // onChange(active): the sound now heard, or null. A looping one goes on until it is stopped.
  constructor(context, buffers, { loop = false, onChange = () => {} } = {}) {
    Object.assign(this, { context, buffers, loop, onChange, active: null, voices: [], startedAt: 0 });
    this.heard = buffers.map(() => 0);
    this.seconds = Math.max(...buffers.map((buffer) => buffer.duration));
  }

  play(index, when = this.context.currentTime) {
    this.stop(when);
    const voices = this.buffers.map((buffer) => {
      const source = new AudioBufferSourceNode(this.context, { buffer, loop: this.loop });
      const gain = new GainNode(this.context, { gain: 0 });
      source.connect(gain).connect(this.context.destination);
      source.start(when);
      return { source, gain: gain.gain };
    });
    this.voices = voices;
    this.startedAt = when;
    this.since = when;
    voices[index].gain.setValueAtTime(1, when);
    this.active = index;
    const longest = this.buffers.findIndex((buffer) => buffer.duration === this.seconds);
    voices[longest].source.onended = () => { if (this.voices === voices) this.stop(); };
    this.onChange(index);
  }

  switchTo(index, when = this.context.currentTime) {
    if (this.active === null) return this.play(index, when);
    if (index === this.active) return undefined;
    this.count(when);
    fade(this.voices[this.active].gain, 1, 0, when);
    fade(this.voices[index].gain, 0, 1, when);
    this.active = index;
    return this.onChange(index);
  }

  stop(when = this.context.currentTime) {
    if (this.active === null) return;
    this.count(when);
    const { voices, active } = this;
    this.voices = [];
    this.active = null;
    fade(voices[active].gain, 1, 0, when);
    for (const { source } of voices) source.stop(when + FADE_S);
    this.onChange(null);
  }

  // Seconds that each sound was heard for, up to now.
  count(now = this.context.currentTime) {
    if (this.active !== null) {
      const end = this.loop ? now : Math.min(now, this.startedAt + this.seconds);
      this.heard[this.active] += Math.max(0, end - this.since);
      this.since = end;
    }
    return this.heard;
  }
}

// Both fades are straight lines over the same samples, so that two copies of one sound add up to that sound.
function fade(gain, from, to, when) {
  gain.cancelScheduledValues(when);
  gain.setValueAtTime(from, when);
  gain.linearRampToValueAtTime(to, when + FADE_S);
}
