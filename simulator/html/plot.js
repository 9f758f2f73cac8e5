// SPDX-License-Identifier: Apache-2.0
// What all charts share: colours of the theme, canvases in device pixels, axes, the tip under the pointer.

const palette = {};

function parseColour(text) {
  const number = parseInt(text.slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}
const colourText = ([r, g, b]) => `rgb(${Math.round(r)} ${Math.round(g)} ${Math.round(b)})`;
const mixed = (a, b, share) => a.map((value, i) => value + (b[i] - value) * share);
const luminance = ([r, g, b]) => (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;

const MOST_SHADES = 8;

// What is there all the time is grey; values are blue, their gradients red and yellow.
const CLASS_COLOURS = {
  weights: 'g0', gradients: 'g1', optimizer: 'g2', workspace: 'g3', activations: 's4', blocks: 's0', partials: 's1',
  'block gradients': 's2', 'passing gradients': 's3', receiving: 's5', sending: 's6',
};

function readPalette() {
  const style = getComputedStyle(root);
  const names = ['paper', 'page', 'ink', 'muted', 'line', 'grid', 'focus', 'F', 'B', 'I', 'W', 'wait', 'queue', 'wire', 'idle',
    'outside', 'warmup', 'steady', 'cooldown', 'other', 'send', 'receive', 'mark', 'heat', 's0', 's1', 's2', 's3', 's4', 's5',
    's6', 's7', 'g0', 'g1', 'g2', 'g3'];
  for (const name of names) palette[name] = style.getPropertyValue(`--${name}`).trim();
  palette.font = style.fontFamily || 'sans-serif';
  const series = [0, 1, 2, 3, 4, 5, 6, 7].map((i) => palette[`s${i}`]);
  palette.classes = facts.memory.classes.map((name, k) => palette[CLASS_COLOURS[name]] || series[k % series.length]);
  // Later virtual stages fade towards the paper, as far as their number stays readable.
  const paper = parseColour(palette.paper);
  const shades = Math.min(facts.vp, MOST_SHADES);
  const fade = luminance(paper) > 0.5 ? 0.55 : 0.42;
  palette.cells = OPS.map((op) => Array.from({length: shades}, (_, shade) => {
    const rgb = mixed(parseColour(palette[op]), paper, shades < 2 ? 0.05 : fade * shade / (shades - 1));
    return {rgb, fill: colourText(rgb), ink: luminance(rgb) > 0.36 ? '#10161c' : '#f4f7fa'};
  }));
  palette.stageShade = Array.from({length: facts.vp}, (_, stage) =>
    facts.vp <= MOST_SHADES ? stage : Math.floor(stage * (MOST_SHADES - 1) / (facts.vp - 1)));
  palette.partOf = (kind) => palette[kind] || palette.other;
  palette.hatch = makeHatch();
}

// Waiting for messages is hatched, so that it differs from every other grey in print, too.
function makeHatch() {
  const size = 6;
  const tile = document.createElement('canvas');
  tile.width = size;
  tile.height = size;
  const g = tile.getContext('2d');
  g.fillStyle = palette.idle;
  g.fillRect(0, 0, size, size);
  g.strokeStyle = palette.wait;
  g.lineWidth = 2;
  g.beginPath();
  for (const shift of [-size, 0, size]) {
    g.moveTo(shift - 1, size + 1);
    g.lineTo(shift + size + 1, -1);
  }
  g.stroke();
  return g.createPattern(tile, 'repeat');
}

// A canvas drawn anew whenever its size or the theme changes. `draw(surface)` draws in CSS pixels.
const surfaces = [];
class Surface {
  constructor(id, draw) {
    this.canvas = byId(id);
    this.draw = draw;
    this.width = 0;
    this.height = 0;
    this.numDrawn = 0;
    this.pending = false;
    surfaces.push(this);
    new ResizeObserver(() => {
      if (Math.round(this.canvas.clientWidth) !== this.width) this.redraw();
    }).observe(this.canvas);
  }
  setHeight(pixels) {
    this.canvas.style.height = `${pixels}px`;
  }
  redraw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.drawNow();
    });
  }
  drawNow() {
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    this.width = Math.round(this.canvas.clientWidth);
    this.height = Math.round(this.canvas.clientHeight);
    if (this.width < 2 || this.height < 2) return;
    const width = Math.round(this.width * ratio);
    const height = Math.round(this.height * ratio);
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
    this.ratio = ratio;
    this.g = this.canvas.getContext('2d');
    this.g.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.g.clearRect(0, 0, this.width, this.height);
    this.font(11);
    this.draw(this);
    this.numDrawn += 1;
  }
  font(pixels, weight = '') {
    this.g.font = `${weight} ${pixels}px ${palette.font}`;
  }
  text(what, x, y, {align = 'left', baseline = 'middle', fill = palette.muted} = {}) {
    this.g.textAlign = align;
    this.g.textBaseline = baseline;
    this.g.fillStyle = fill;
    this.g.fillText(what, x, y);
  }
  line(x1, y1, x2, y2, stroke = palette.grid, width = 1) {
    this.g.strokeStyle = stroke;
    this.g.lineWidth = width;
    this.g.beginPath();
    this.g.moveTo(x1, y1);
    this.g.lineTo(x2, y2);
    this.g.stroke();
  }
  // The place of an event of the pointer, in CSS pixels.
  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }
}

function redrawAll() {
  readPalette();
  for (const surface of surfaces) surface.redraw();
}

// Round values between low and high, about `wanted` of them.
function ticksBetween(low, high, wanted) {
  const span = high - low;
  if (!(span > 0)) return {values: [low], step: 0};
  const rough = span / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const values = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-6; value += step) values.push(value);
  return {values, step};
}

// The same for bytes, whose round values are powers of two.
function byteTicks(high, wanted) {
  let step = 1;
  while (step * wanted < high) step *= 2;
  const values = [];
  for (let value = 0; value <= high; value += step) values.push(value);
  return values;
}

// Times along the bottom or top edge `y` of a plot between x = left and x = right.
function timeAxis(surface, from, to, left, right, y, plotTop, plotBottom) {
  const {values, step} = ticksBetween(from, to, Math.max(2, (right - left) / 110));
  const scale = (right - left) / (to - from);
  for (const value of values) {
    const x = Math.round(left + (value - from) * scale) + 0.5;
    surface.line(x, plotTop, x, plotBottom);
    const align = x > right - 30 ? 'right' : x < left + 24 ? 'left' : 'center';
    surface.text(timeText(value, step, Math.max(Math.abs(from), Math.abs(to))), x, y, {align});
  }
}

function legend(id, entries) {
  byId(id).replaceChildren(...entries.map(([name, colour, hatched]) => {
    const entry = element('span', name);
    const swatch = element('i');
    swatch.style.background = hatched
      ? `repeating-linear-gradient(135deg, ${palette.wait} 0 2px, ${palette.idle} 2px 5px)` : colour;
    entry.prepend(swatch);
    return entry;
  }));
}

// Lines of text beside the pointer; nothing hides it.
function showTip(event, lines) {
  const tip = byId('tip');
  tip.hidden = !lines;
  if (!lines) return;
  fillLines(tip, lines);
  const {width, height} = tip.getBoundingClientRect();
  const x = event.clientX + 14 + width > window.innerWidth ? event.clientX - 14 - width : event.clientX + 14;
  const y = event.clientY + 14 + height > window.innerHeight ? event.clientY - 10 - height : event.clientY + 14;
  tip.style.left = `${Math.max(2, x)}px`;
  tip.style.top = `${Math.max(2, y)}px`;
}

// `linesAt(x, y)` gives what the tip says there, or nothing.
function tipOn(surface, linesAt) {
  surface.canvas.addEventListener('pointermove', (event) => showTip(event, linesAt(...surface.place(event))));
  surface.canvas.addEventListener('pointerleave', (event) => showTip(event, null));
}
