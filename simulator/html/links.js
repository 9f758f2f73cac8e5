// SPDX-License-Identifier: Apache-2.0
// Who sends how much to whom, and how busy each interface is.

// A square per pair of ranks: senders downwards, receivers to the right.
function linksChart() {
  const {from, to, bytes, moving, queued, messages, all} = facts.links;
  const what = byId('links-what');
  const group = Math.ceil(facts.pp / 128);  // more ranks than that share a square
  const cells = Math.ceil(facts.pp / group);
  const left = MARGIN;
  const top = 18;
  let byCell = null;
  const collect = () => {
    byCell = new Map();
    for (let i = 0; i < from.length; i += 1) {
      const key = Math.floor(from[i] / group) * cells + Math.floor(to[i] / group);
      if (!byCell.has(key)) byCell.set(key, []);
      byCell.get(key).push(i);
    }
  };
  collect();
  const values = {bytes, moving, queued};
  const valueOf = (links) => links.reduce((most, i) => Math.max(most, values[what.value][i]), 0);
  const textOf = (value) => (what.value === 'bytes' ? byteText(value) : what.value === 'moving' ? percentText(value / STEP) : timeText(value));
  const sizeOf = () => Math.min(44, (surface.width - left - 110) / cells);
  const surface = new Surface('links-chart', ({g}) => {
    const size = sizeOf();
    const wanted = Math.ceil(top + cells * size) + 22;
    if (Math.abs(surface.height - wanted) > 1) {  // the squares grow with the width
      surface.setHeight(wanted);
      surface.drawNow();
      return;
    }
    const high = Math.max(1e-9, ...[...byCell.values()].map(valueOf));
    const paper = parseColour(palette.grid);
    const heat = parseColour(palette.heat);
    g.fillStyle = palette.outside;
    g.fillRect(left, top, cells * size, cells * size);
    surface.font(Math.min(10, size * 0.26));
    for (const [key, links] of byCell) {
      const x = left + (key % cells) * size;
      const y = top + Math.floor(key / cells) * size;
      const value = valueOf(links);
      const rgb = mixed(paper, heat, value / high);
      g.fillStyle = colourText(rgb);
      g.fillRect(x, y, size > 3 ? size - 1 : size, size > 3 ? size - 1 : size);
      if (size >= 30) {
        const text = what.value === 'moving' ? `${(value / STEP * 100).toFixed(1)}` : textOf(value);
        surface.text(text, x + size / 2, y + size / 2, {align: 'center', fill: luminance(rgb) > 0.4 ? '#10161c' : '#f4f7fa'});
      }
    }
    surface.font(11);
    const names = Math.max(1, Math.ceil(13 / size));
    for (let i = 0; i < cells; i += names) {
      surface.text(`${i * group}`, left - 5, top + (i + 0.5) * size, {align: 'right'});
      if (i % Math.max(names, Math.ceil(20 / size)) === 0) surface.text(`${i * group}`, left + (i + 0.5) * size, top - 8, {align: 'center'});
    }
    surface.text('from', 2, top - 8);
    surface.text('to', left + cells * size + 6, top - 8);
    const barX = left + cells * size + 24;
    const barHeight = Math.min(140, cells * size);
    for (let i = 0; i < barHeight; i += 1) {
      g.fillStyle = colourText(mixed(heat, paper, i / barHeight));
      g.fillRect(barX, top + i, 10, 1);
    }
    surface.text(textOf(high), barX + 14, top + 5);
    surface.text('0', barX + 14, top + barHeight - 4);
    if (all > from.length) surface.text(`the ${from.length} of ${all} links with the most bytes`, left, top + cells * size + 12);
  });
  surface.setHeight(240);
  surface.canvas.setAttribute('aria-label', `Load from rank to rank over ${from.length} links`);
  what.addEventListener('change', () => surface.redraw());
  tipOn(surface, (x, y) => {
    const size = sizeOf();
    const column = Math.floor((x - left) / size);
    const row = Math.floor((y - top) / size);
    if (column < 0 || row < 0 || column >= cells || row >= cells) return null;
    const links = byCell.get(row * cells + column);
    if (!links) return [`rank ${row * group} to ${column * group}: nothing`];
    return links.slice(0, 6).flatMap((i) => [`rank ${from[i]} to ${to[i]}: ${byteText(bytes[i])} in ${messages[i]} messages`,
      `messages move for ${timeText(moving[i])}, ${percentText(moving[i] / STEP)} of the step; they queued ${timeText(queued[i])} in all`]);
  });
}

// A bar per interface: for how much of the step something moves through it.
function loadsChart() {
  const {loads} = facts;
  const left = 62;
  const group = Math.max(1, Math.ceil(loads.length / 600));  // more than that: the busiest of neighbours
  const bars = Math.ceil(loads.length / group);
  const high = Math.max(1e-9, ...loads.map((load) => load.busy / STEP));
  const surface = new Surface('loads-chart', ({g, width, height}) => {
    const right = width - 8;
    const top = 22;
    const bottom = height - 16;
    surface.text('interfaces, in use for so much of the step', left, 8);
    for (const value of ticksBetween(0, high, 3).values) {
      const y = Math.round(bottom - value / high * (bottom - top)) + 0.5;
      surface.line(left, y, right, y);
      surface.text(`${Number((value * 100).toPrecision(3))} %`, left - 5, y, {align: 'right'});
    }
    const step = (right - left) / bars;
    for (let i = 0; i < bars; i += 1) {
      const share = Math.max(...loads.slice(i * group, (i + 1) * group).map((load) => load.busy / STEP));
      g.fillStyle = palette.heat;
      g.fillRect(left + i * step, bottom - share / high * (bottom - top), step > 4 ? step - 1 : step, share / high * (bottom - top));
    }
    const widest = Math.max(1, ...loads.slice(-64).map((load) => g.measureText(load.name).width)) + 10;
    const names = Math.max(1, Math.ceil(bars * widest / (right - left)));
    for (let i = 0; i < bars; i += names) {
      const x = left + (i + 0.5) * step;
      const align = step * names > widest ? 'center' : x > right - widest / 2 ? 'right' : 'left';
      surface.text(loads[i * group].name, align === 'left' ? x - step / 2 : x, bottom + 9, {align});
    }
  });
  surface.setHeight(loads.length > 0 ? 140 : 0);
  surface.canvas.setAttribute('aria-label', `Use of ${loads.length} interfaces; the numbers are in a table below`);
  tipOn(surface, (x) => {
    const i = Math.floor((x - left) / (surface.width - 8 - left) * bars);
    if (i < 0 || i >= bars) return null;
    return loads.slice(i * group, (i + 1) * group).slice(0, 8)
      .map((load) => `${load.name}: in use ${timeText(load.busy)}, ${percentText(load.busy / STEP)} of the step; ${byteText(load.bytes)} in ${load.messages} messages`);
  });
}
