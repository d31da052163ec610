// Plays several sounds of one length in lockstep: all run, one is heard. Switching fades within FADE_S at the same sample.
export const FADE_S = 0.012;
// Whatever is changed is changed a little later, since what runs now has been computed already; else it would click.
const LEAD_S = 0.03;

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
  // Several sounds are mono. onChange(active): the sound now heard, or null. A looping one goes on until it is stopped.
  constructor(context, buffers, { loop = false, onChange = () => {} } = {}) {
    Object.assign(this, { context, loop, onChange, active: null, source: null, gains: [], startedAt: 0, since: 0 });
    this.heard = buffers.map(() => 0);
    this.buffer = buffers.length === 1 ? buffers[0] : joined(context, buffers);
    this.seconds = this.buffer.duration;
  }

  soon() { return this.context.currentTime + LEAD_S + (this.context.baseLatency ?? 0); }

  play(index, when = this.soon()) {
    this.stop(when);
    const source = new AudioBufferSourceNode(this.context, { buffer: this.buffer, loop: this.loop });
    Object.assign(this, { source, gains: this.wired(source), startedAt: when, since: when, active: index });
    this.gains[index].setValueAtTime(1, when);
    source.onended = () => { if (this.source === source) this.stop(); };
    source.start(when);
    this.onChange(index);
  }

  // The volume of each sound. One source plays them all, so that none can start a moment after another.
  wired(source) {
    const gains = this.heard.map(() => new GainNode(this.context, { gain: 0 }));
    for (const gain of gains) gain.connect(this.context.destination);
    if (gains.length === 1) {
      source.connect(gains[0]);
    } else {
      const splitter = new ChannelSplitterNode(this.context, { numberOfOutputs: gains.length });
      source.connect(splitter);
      for (const [n, gain] of gains.entries()) splitter.connect(gain, n);
    }
    return gains.map((node) => node.gain);
  }

  switchTo(index, when = this.soon()) {
    if (this.active === null) return this.play(index, when);
    if (index === this.active) return undefined;
    this.count(when);
    fade(this.gains[this.active], 1, 0, when);
    fade(this.gains[index], 0, 1, when);
    this.active = index;
    return this.onChange(index);
  }

  stop(when = this.soon()) {
    if (this.active === null) return;
    this.count(when);
    const { source, gains, active } = this;
    Object.assign(this, { source: null, active: null });
    fade(gains[active], 1, 0, when);
    source.stop(when + FADE_S);
    this.onChange(null);
  }

  // Seconds that each sound was heard for, up to now.
  count(now = this.context.currentTime) {
    if (this.active !== null) {
      const end = this.loop ? now : Math.min(now, this.startedAt + this.seconds);
      this.heard[this.active] += Math.max(0, end - this.since);
      this.since = Math.max(this.since, end);
    }
    return this.heard;
  }
}

// Mono sounds as the channels of one buffer; shorter ones end in silence.
function joined(context, buffers) {
  const length = Math.max(...buffers.map((buffer) => buffer.length));
  const made = context.createBuffer(buffers.length, length, buffers[0].sampleRate);
  for (const [n, buffer] of buffers.entries()) made.copyToChannel(buffer.getChannelData(0), n);
  return made;
}

// Both fades are straight lines over the same samples, so that two copies of one sound add up to that sound.
function fade(gain, from, to, when) {
  gain.cancelScheduledValues(when);
  gain.setValueAtTime(from, when);
  gain.linearRampToValueAtTime(to, when + FADE_S);
}
