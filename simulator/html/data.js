// SPDX-License-Identifier: Apache-2.0
// What is in the page: facts as JSON, and the step's events as numbers in base64 (html_events.hpp says how).

const root = document.documentElement;
const byId = (id) => document.getElementById(id);

let numErrors = 0;
root.dataset.errors = '0';
function recordError(what) {
  numErrors += 1;
  root.dataset.errors = String(numErrors);
  const place = byId('failure');
  if (!place) return;
  place.hidden = false;
  place.textContent = `The script of this page failed: ${what}. The tables below are complete.`;
}
window.addEventListener('error', (event) => recordError(event.message));
window.addEventListener('unhandledrejection', (event) => recordError(String(event.reason)));

const facts = JSON.parse(byId('facts').textContent);

function bytesOf(id) {
  const element = byId(id);
  const text = atob(element.textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) bytes[i] = text.charCodeAt(i);
  element.textContent = '';  // its 4/3 of the size are not needed twice
  return bytes;
}

// Numbers up to 2^53, so with products instead of shifts beyond 28 bits.
class NumberReader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }
  next() {
    let byte = this.bytes[this.at++];
    let value = byte & 127;
    for (let scale = 128; byte > 127; scale *= 128) {
      byte = this.bytes[this.at++];
      value += (byte & 127) * scale;
    }
    return value;
  }
  signed() {
    const value = this.next();
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }
  isAtEnd() {
    return this.at >= this.bytes.length;
  }
}

const OPS = ['F', 'B', 'I', 'W'];
const [PATH_WIRE, PATH_QUEUE, PATH_WAIT] = [3, 4, 5];  // the others compute
const OP_NAMES = ['forward', 'backward', 'backward for inputs', 'backward for weights'];

function readTransfers() {
  const reader = new NumberReader(bytesOf('transfers'));
  const count = reader.next();
  const transfers = {count, from: new Int32Array(count), to: new Int32Array(count), units: new Int32Array(count),
    bulk: new Uint8Array(count)};
  for (let t = 0; t < count; t += 1) {
    transfers.from[t] = reader.next();
    transfers.to[t] = reader.next();
    const rest = reader.next();
    transfers.units[t] = rest >> 1;
    transfers.bulk[t] = rest & 1;
  }
  return transfers;
}

// All actions, rank after rank, each rank's in order of time: those of rank r are first[r] .. first[r + 1] - 1.
function readActions() {
  const reader = new NumberReader(bytesOf('actions'));
  const count = facts.actions.kept;
  const actions = {
    count,
    first: new Int32Array(facts.pp + 1),
    start: new Float64Array(count),
    duration: new Float64Array(count),
    exposed: new Float64Array(count),
    op: new Uint8Array(count),
    stage: new Uint16Array(count),
    microbatch: new Int32Array(count),
    awaited: new Int32Array(count).fill(-1),  // transfer * 2 + backward
    awaitedMicrobatch: new Int32Array(count),
  };
  const kinds = facts.vp * 4;
  const lastMicrobatch = new Float64Array(kinds);
  const lastDuration = new Float64Array(kinds);
  let at = 0;
  for (let rank = 0; rank < facts.pp; rank += 1) {
    actions.first[rank] = at;
    lastMicrobatch.fill(-1);
    lastDuration.fill(-1);
    let stage = 0;
    let time = 0;
    for (let left = reader.next(); left > 0; left -= 1, at += 1) {
      const flags = reader.next();
      if (flags & 128) stage = reader.next();
      const op = (flags >> 5) & 3;
      const kind = stage * 4 + op;
      const idle = flags & 1 ? reader.next() : 0;
      let exposed = flags & 8 ? idle : 0;
      if (flags & 16) exposed = reader.next();
      let microbatch = lastMicrobatch[kind] + 1;
      if (flags & 2) microbatch += reader.signed();
      if (flags & 4) lastDuration[kind] = reader.next();
      lastMicrobatch[kind] = microbatch;
      actions.start[at] = time + idle;
      actions.duration[at] = lastDuration[kind];
      actions.exposed[at] = exposed;
      actions.op[at] = op;
      actions.stage[at] = stage;
      actions.microbatch[at] = microbatch;
      if (flags & 8) {
        actions.awaited[at] = reader.next();
        actions.awaitedMicrobatch[at] = microbatch + reader.signed();
      }
      time = actions.start[at] + actions.duration[at];
    }
  }
  actions.first[facts.pp] = at;
  if (at !== count || !reader.isAtEnd()) throw new Error(`${at} of ${count} actions were read`);
  return actions;
}

function readMessages(transfers) {
  const reader = new NumberReader(bytesOf('messages'));
  const count = reader.next();
  const messages = {
    count,
    transfer: new Int32Array(count),
    backward: new Uint8Array(count),
    microbatch: new Int32Array(count),
    start: new Float64Array(count),
    sent: new Float64Array(count),
    arrived: new Float64Array(count),
    ready: new Float64Array(count),
    posted: new Float64Array(count),
  };
  const lastMicrobatch = new Float64Array(transfers.count * 2).fill(-1);
  const lastMoving = new Float64Array(transfers.count * 2).fill(-1);
  const lastLatency = new Float64Array(transfers.count * 2).fill(-1);
  let transfer = 0;
  let start = 0;
  for (let m = 0; m < count; m += 1) {
    const flags = reader.next();
    transfer += reader.signed();
    const kind = transfer * 2 + (flags & 1);
    lastMicrobatch[kind] += 1 + reader.signed();
    start += reader.signed();
    if (flags & 2) lastMoving[kind] = reader.signed();
    if (flags & 4) lastLatency[kind] = reader.signed();
    messages.transfer[m] = transfer;
    messages.backward[m] = flags & 1;
    messages.microbatch[m] = lastMicrobatch[kind];
    messages.start[m] = start;
    messages.sent[m] = start + lastMoving[kind];
    messages.arrived[m] = messages.sent[m] + lastLatency[kind];
    messages.ready[m] = start - (flags & 8 ? reader.next() : 0);
    messages.posted[m] = start - (flags & 16 ? reader.next() : 0);
  }
  if (count !== facts.messages.kept || !reader.isAtEnd()) throw new Error(`${count} messages were read`);
  return messages;
}

// The longest chain, in order of time: from start[i] to end[i] on rank[i], or on the way from it to to[i]. What happens
// to one message after the other, launch, queue and wire, is one piece.
function readPath() {
  const reader = new NumberReader(bytesOf('path'));
  const path = {start: [], end: [], rank: [], to: [], isWait: []};
  let time = 0;
  for (let left = reader.next(); left > 0; left -= 1) {
    const kind = reader.next();
    const rank = reader.next();
    const to = kind === PATH_WIRE || kind === PATH_QUEUE ? reader.next() : rank;
    const last = path.end.length - 1;
    const begin = time;
    time += reader.next();
    if (to !== rank && last >= 0 && path.rank[last] === rank && path.to[last] === to) {
      path.end[last] = time;
    } else {
      path.start.push(begin);
      path.end.push(time);
      path.rank.push(rank);
      path.to.push(to);
      path.isWait.push(kind === PATH_WAIT);
    }
  }
  if (!reader.isAtEnd()) throw new Error('the longest chain was not read to its end');
  return path;
}

// Per rank: times, bytes[point * classes + class], totals, chunks, and the place of the peak.
function readMemory() {
  const reader = new NumberReader(bytesOf('memory'));
  const classes = facts.memory.classes.length;
  const ranks = [];
  for (let rank = 0; rank < facts.memory.ranks; rank += 1) {
    const count = reader.next();
    const series = {times: new Float64Array(count), bytes: new Float64Array(count * classes),
      totals: new Float64Array(count), chunks: new Int32Array(count), peak: 0, mostChunks: 0};
    const now = new Float64Array(classes);
    let time = 0;
    let chunks = 0;
    for (let i = 0; i < count; i += 1) {
      time += reader.next();
      series.times[i] = time;
      for (let c = 0; c < classes; c += 1) {
        now[c] += reader.signed();
        series.bytes[i * classes + c] = now[c];
        series.totals[i] += now[c];
      }
      chunks += reader.signed();
      series.chunks[i] = chunks;
      series.mostChunks = Math.max(series.mostChunks, chunks);
      if (series.totals[i] > series.totals[series.peak]) series.peak = i;
    }
    ranks.push(series);
  }
  if (!reader.isAtEnd()) throw new Error('memory was not read to its end');
  return ranks;
}

// The first of values[from .. to - 1] that is above `limit`, or `to`. They ascend.
function firstAbove(values, limit, from, to) {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (values[middle] > limit) to = middle;
    else from = middle + 1;
  }
  return from;
}

const TICKS_PER_US = 1e6 / facts.tick_ps;

// "12.345 ms": in the unit that suits `scale`, with digits down to `grain` (both in ticks).
function timeText(ticks, grain = 0, scale = ticks) {
  const us = Math.abs(scale) / TICKS_PER_US;
  const [unit, size] = us >= 1e6 ? ['s', 1e6] : us >= 1e3 ? ['ms', 1e3] : us >= 1 || us === 0 ? ['\u00b5s', 1] : ['ns', 1e-3];
  const value = ticks / TICKS_PER_US / size;
  const step = grain > 0 ? grain / TICKS_PER_US / size : Math.max(1e-3, Math.abs(value) * 1e-5);
  const digits = Math.min(6, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));
  return `${value.toFixed(digits)} ${unit}`;
}

function byteText(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  let value = bytes;
  while (Math.abs(value) >= 1024 && unit + 1 < units.length) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(value >= 100 ? 1 : 2)} ${units[unit]}`;
}

const percentText = (share) => `${(share * 100).toFixed(share < 0.001 && share > 0 ? 3 : 2)} %`;

// Elements are made with textContent only: no name is ever read as HTML.
function element(name, text = '', className = '') {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function fillLines(place, lines) {
  place.replaceChildren(...lines.map((line, i) => element('p', line, i === 0 ? 'first' : '')));
}
