// SPDX-License-Identifier: Apache-2.0
// The charts below the timeline: memory, parts of each rank's step, traffic from chunk to chunk.

class MemoryChart {
  constructor(line, series) {
    this.line = line;
    this.series = series;
    this.peakOf = (rank) => (series[rank].times.length ? series[rank].totals[series[rank].peak] : 0);
    this.rank = series.reduce((best, _, rank) => (this.peakOf(rank) > this.peakOf(best) ? rank : best), 0);
    this.highest = this.rank;
    const select = byId('memory-rank');
    select.replaceChildren(...series.map((_, rank) => element('option', `${rank}${rank === this.highest ? ' (highest)' : ''}`)));
    select.selectedIndex = this.rank;
    select.addEventListener('change', () => this.setRank(select.selectedIndex));
    byId('memory-follow').addEventListener('change', () => this.chart.redraw());
    byId('memory-note').textContent = facts.memory.note;
    this.chart = new Surface('memory-chart', (surface) => this.drawChart(surface));
    this.chart.setHeight(series[0].mostChunks > 0 ? 270 : 220);
    this.peaks = new Surface('memory-peaks', (surface) => this.drawPeaks(surface));
    this.peaks.setHeight(110);
    line.onView.push(() => byId('memory-follow').checked && this.chart.redraw());
    line.onRank.push((rank) => this.setRank(rank));
    tipOn(this.chart, (x) => this.tipAt(x));
    tipOn(this.peaks, (x) => {
      const rank = this.rankAt(x);
      return rank < 0 ? null : [`rank ${rank}: ${byteText(this.peakOf(rank))} at its peak`, 'click to show it above'];
    });
    this.peaks.canvas.addEventListener('click', (event) => {
      const rank = this.rankAt(this.peaks.place(event)[0]);
      if (rank >= 0) this.setRank(rank);
    });
    this.fillLive();
  }

  setRank(rank) {
    if (rank === this.rank) return;
    this.rank = rank;
    byId('memory-rank').selectedIndex = rank;
    this.fillLive();
    this.chart.redraw();
    this.peaks.redraw();
  }

  get left() {
    return 62;
  }
  get span() {
    return byId('memory-follow').checked ? [this.line.from, this.line.to] : [0, STEP];
  }

  drawChart(surface) {
    const {g} = surface;
    const series = this.series[this.rank];
    const classes = facts.memory.classes.length;
    const [from, to] = this.span;
    const {left} = this;
    const right = surface.width - 8;
    const strip = series.mostChunks > 0 ? 44 : 0;
    const top = 18;
    const bottom = surface.height - 20 - strip;
    const high = Math.max(1, this.peakOf(this.rank)) * 1.06;
    timeAxis(surface, from, to, left, right, surface.height - 8, top, surface.height - 18);
    for (const value of byteTicks(high, 5)) {
      const y = Math.round(bottom - value / high * (bottom - top)) + 0.5;
      surface.line(left, y, right, y);
      surface.text(byteText(value), left - 5, y, {align: 'right'});
    }
    const columns = Math.round((right - left) * surface.ratio);
    const chosen = this.highestPerColumn(series, from, to, columns);
    const width = (right - left) / columns;
    for (let c = 0; c < columns; c += 1) {
      const i = chosen[c];
      if (i < 0) continue;
      let y = bottom;
      for (let k = 0; k < classes; k += 1) {
        const part = series.bytes[i * classes + k] / high * (bottom - top);
        if (part <= 0) continue;
        g.fillStyle = palette.classes[k];
        g.fillRect(left + c * width, y - part, width + 0.2, part);
        y -= part;
      }
    }
    if (strip > 0) this.drawChunks(surface, series, chosen, width, bottom + 10, strip - 12);
    this.drawPeak(surface, series, from, to, left, right, top, bottom, high);
  }

  // Per column the point with the most bytes of those that hold there.
  highestPerColumn(series, from, to, columns) {
    const chosen = new Int32Array(columns).fill(-1);
    const count = series.times.length;
    let next = firstAbove(series.times, from, 0, count);
    for (let c = 0; c < columns; c += 1) {
      const end = from + (to - from) * (c + 1) / columns;
      let best = next - 1;
      while (next < count && series.times[next] <= end) {
        if (best < 0 || series.totals[next] >= series.totals[best]) best = next;
        next += 1;
      }
      chosen[c] = best;
    }
    return chosen;
  }

  drawChunks(surface, series, chosen, width, top, height) {
    const {g} = surface;
    const most = series.mostChunks;
    g.fillStyle = palette.s7;
    for (let c = 0; c < chosen.length; c += 1) {
      if (chosen[c] < 0) continue;
      const part = series.chunks[chosen[c]] / most * height;
      g.fillRect(this.left + c * width, top + height - part, width + 0.2, part);
    }
    surface.text(`${most}`, this.left - 5, top + 4, {align: 'right'});
    surface.text('chunks', this.left - 5, top + height - 5, {align: 'right'});
  }

  drawPeak(surface, series, from, to, left, right, top, bottom, high) {
    if (series.times.length === 0) return;
    const time = series.times[series.peak];
    if (time < from || time > to) return;
    const x = left + (time - from) / (to - from) * (right - left);
    const y = bottom - series.totals[series.peak] / high * (bottom - top);
    surface.line(x, top - 4, x, bottom, palette.mark);
    surface.g.fillStyle = palette.mark;
    surface.g.beginPath();
    surface.g.arc(x, y, 3.5, 0, 7);
    surface.g.fill();
    const text = `peak ${byteText(series.totals[series.peak])} at ${timeText(time, STEP / 1e5, STEP)}`;
    const align = x > (left + right) / 2 ? 'right' : 'left';
    surface.text(text, x + (align === 'right' ? -6 : 6), top - 8, {align, fill: palette.ink});
  }

  drawPeaks(surface) {
    const {g} = surface;
    const {left} = this;
    const right = surface.width - 4;
    const bottom = surface.height - 16;
    const top = 14;
    const high = Math.max(1, this.peakOf(this.highest));
    surface.text('peak by rank', left, 6);
    surface.text(byteText(high), left - 5, top + 4, {align: 'right'});
    surface.text('0', left - 5, bottom - 4, {align: 'right'});
    const width = (right - left) / facts.pp;
    for (let rank = 0; rank < facts.pp; rank += 1) {
      const part = this.peakOf(rank) / high * (bottom - top);
      g.fillStyle = rank === this.rank ? palette.mark : palette.s7;
      g.fillRect(left + rank * width, bottom - part, Math.max(0.5, width > 4 ? width - 1 : width), part);
    }
    surface.line(left, bottom + 0.5, right, bottom + 0.5, palette.line);
    const every = Math.max(1, Math.ceil(facts.pp * 26 / (right - left)));
    for (let rank = 0; rank < facts.pp; rank += every) {
      surface.text(String(rank), left + (rank + 0.5) * width, bottom + 9, {align: 'center'});
    }
  }

  rankAt(x) {
    const rank = Math.floor((x - this.left) / (this.peaks.width - 4 - this.left) * facts.pp);
    return rank >= 0 && rank < facts.pp ? rank : -1;
  }

  linesOf(i) {
    const series = this.series[this.rank];
    const classes = facts.memory.classes.length;
    return facts.memory.classes.map((name, k) => [name, series.bytes[i * classes + k], k]);
  }

  tipAt(x) {
    const series = this.series[this.rank];
    const [from, to] = this.span;
    const time = from + (x - this.left) / (this.chart.width - 8 - this.left) * (to - from);
    if (time < from || time > to || series.times.length === 0) return null;
    const i = Math.max(0, firstAbove(series.times, time, 0, series.times.length) - 1);
    const lines = this.linesOf(i).filter(([, bytes]) => bytes > 0).map(([name, bytes]) => `${name}: ${byteText(bytes)}`);
    return [`rank ${this.rank} at ${timeText(time, STEP / 1e5, STEP)}: ${byteText(series.totals[i])}`, ...lines,
      ...(series.mostChunks > 0 ? [`activations of ${series.chunks[i]} chunks`] : [])];
  }

  // What is resident at the peak, as a table.
  fillLive() {
    const series = this.series[this.rank];
    if (series.times.length === 0) return;
    const table = element('table');
    table.append(element('caption', `rank ${this.rank} at its peak, ${timeText(series.times[series.peak], STEP / 1e5, STEP)}`));
    const body = element('tbody');
    const total = series.totals[series.peak];
    for (const [name, bytes, k] of this.linesOf(series.peak).reverse()) {
      const row = element('tr');
      const swatch = element('td', '', 'swatch');
      const square = element('i');
      square.style.background = palette.classes[k];
      swatch.append(square);
      const head = element('th', name);
      head.scope = 'row';
      row.append(swatch, head, element('td', byteText(bytes)), element('td', total > 0 ? percentText(bytes / total) : ''));
      body.append(row);
    }
    const sum = element('tr');
    const head = element('th', 'together');
    head.scope = 'row';
    sum.append(element('td'), head, element('td', byteText(total)), element('td'));
    body.append(sum);
    if (series.mostChunks > 0) {
      const row = element('tr');
      const name = element('th', 'activations');
      name.scope = 'row';
      row.append(element('td'), name, element('td', `${series.chunks[series.peak]} chunks`), element('td', `most ${series.mostChunks}`));
      body.append(row);
    }
    table.append(body);
    byId('memory-live').replaceChildren(table);
    this.chart.canvas.setAttribute('aria-label', `Bytes resident on rank ${this.rank} over time by class; ${byteText(total)} at the peak`);
    this.peaks.canvas.setAttribute('aria-label', `Peak bytes by rank; rank ${this.highest} has the most, ${byteText(this.peakOf(this.highest))}`);
  }
}

// Horizontal bars, one per rank, whose parts add up to the step.
function splitChart() {
  const {parts, times} = facts.split;
  const every = Math.ceil(facts.pp / 512);  // more ranks than that: only every so many
  const rows = Math.ceil(facts.pp / every);
  const height = Math.max(1, Math.min(30, 560 / rows));
  const left = MARGIN;
  const show = () => legend('split-legend', parts.map((part) => [part.name, palette.partOf(part.kind), part.kind === 'wait']));
  const labelPart = (to, p, x, y, share) => {
    const {kind} = parts[p];
    const plain = kind === 'wait' ? palette.idle : palette.partOf(kind);
    if (kind === 'wait') {
      to.g.fillStyle = plain;
      to.g.fillRect(x - 20, y - 7, 40, 14);
    }
    to.text(`${(share * 100).toFixed(1)} %`, x, y, {align: 'center', fill: luminance(parseColour(plain)) > 0.36 ? '#10161c' : '#f4f7fa'});
  };
  const surface = new Surface('split-chart', ({g, width}) => {
    const right = width - 8;
    show();
    for (let row = 0; row < rows; row += 1) {
      const rank = row * every;
      let x = left;
      const y = 4 + row * height;
      for (let p = 0; p < parts.length; p += 1) {
        const part = times[rank * parts.length + p] / STEP * (right - left);
        if (part <= 0) continue;
        g.fillStyle = parts[p].kind === 'wait' ? palette.hatch : palette.partOf(parts[p].kind);
        g.fillRect(x, y, part, height > 4 ? height - 1.5 : height);
        if (height > 14 && part > 46) labelPart(surface, p, x + part / 2, y + height / 2, part / (right - left));
        x += part;
      }
    }
    const names = Math.max(1, Math.ceil(11 / height));
    for (let row = 0; row < rows; row += names) surface.text(`rank ${row * every}`, left - 5, 4 + (row + 0.5) * height, {align: 'right'});
    const bottom = 4 + rows * height;
    for (const share of [0, 0.25, 0.5, 0.75, 1]) {
      const x = left + share * (right - left);
      surface.line(x, 4, x, bottom, share === 0 || share === 1 ? palette.line : palette.grid, 0.5);
      surface.text(`${share * 100} %`, x, bottom + 9, {align: share === 1 ? 'right' : share === 0 ? 'left' : 'center'});
    }
  });
  surface.setHeight(Math.ceil(4 + rows * height) + 18);
  surface.canvas.setAttribute('aria-label', `Parts of each rank's step: ${parts.map((part) => part.name).join(', ')}; the numbers are in the table of ranks`);
  tipOn(surface, (x, y) => {
    const rank = Math.floor((y - 4) / height) * every;
    if (rank < 0 || rank >= facts.pp || y < 4) return null;
    const lines = parts.map((part, p) => [part.name, times[rank * parts.length + p]]).filter(([, time]) => time > 0)
      .map(([name, time]) => `${name}: ${timeText(time)}, ${percentText(time / STEP)}`);
    return [`rank ${rank}`, ...lines];
  });
}

// Bars up for forward, down for backward bytes of each pair of chunks.
function hopsChart() {
  const {from, to, forward, backward, queued, on_wire: onWire} = facts.hops;
  const count = from.length;
  const left = 62;
  const heightOf = 250;
  const group = Math.max(1, Math.ceil(count / 600));  // more than that: the largest of neighbours
  const bars = Math.ceil(count / group);
  const high = Math.max(1, ...chunked(forward, group), ...chunked(backward, group));
  const surface = new Surface('hops-chart', ({g, width, height}) => {
    legend('hops-legend', [['forward (up)', palette.F], ['backward (down)', palette.B]]);
    const right = width - 8;
    const middle = (height - 16) / 2;
    const scale = (middle - 8) / high;
    for (const value of byteTicks(high, 3)) {
      for (const sign of [1, -1]) {
        const y = Math.round(middle - sign * value * scale) + 0.5;
        surface.line(left, y, right, y);
        surface.text(byteText(value), left - 5, y, {align: 'right'});
      }
    }
    const step = (right - left) / bars;
    for (let i = 0; i < bars; i += 1) {
      let up = 0;
      let down = 0;
      for (let k = i * group; k < Math.min(count, (i + 1) * group); k += 1) {
        up = Math.max(up, forward[k]);
        down = Math.max(down, backward[k]);
      }
      const x = left + i * step;
      const barWidth = step > 3 ? step - Math.min(3, step * 0.2) : step;
      g.fillStyle = palette.F;
      g.fillRect(x, middle - up * scale, barWidth, up * scale);
      g.fillStyle = palette.B;
      g.fillRect(x, middle, barWidth, down * scale);
    }
    surface.line(left, middle, right, middle, palette.muted);
    const widest = count > 0 ? g.measureText(`${from[count - 1]}\u2192${to[count - 1]}`).width + 10 : 1;
    const names = Math.max(1, Math.ceil(bars * widest / (right - left)));
    for (let i = 0; i < bars; i += names) {
      const k = i * group;
      surface.text(`${from[k]}\u2192${to[k]}`, left + (i + 0.5) * step, height - 8, {align: 'center'});
    }
    if (count === 0) surface.text('no messages: one rank', (left + right) / 2, middle - 12, {align: 'center'});
  });
  surface.setHeight(heightOf);
  surface.canvas.setAttribute('aria-label', `Bytes from chunk to chunk in one step for ${count} pairs, forward and backward; the numbers are in the table of hops`);
  tipOn(surface, (x) => {
    const i = Math.floor((x - left) / (surface.width - 8 - left) * bars);
    if (i < 0 || i >= bars) return null;
    const lines = [];
    for (let k = i * group; k < Math.min(count, (i + 1) * group) && lines.length < 12; k += 1) {
      lines.push(`chunk ${from[k]} to ${to[k]} (rank ${facts.chunk_rank[from[k]]} to ${facts.chunk_rank[to[k]]})`,
        `forward ${byteText(forward[k])}, backward ${byteText(backward[k])}`,
        `queued ${timeText(queued[k])}, on the way ${timeText(onWire[k])} (summed over messages)`);
    }
    return lines;
  });
}

// The largest of every `group` values.
function chunked(values, group) {
  const all = [];
  for (let i = 0; i < values.length; i += group) {
    let most = 0;
    for (let k = i; k < Math.min(values.length, i + group); k += 1) most = Math.max(most, values[k]);
    all.push(most);
  }
  return all;
}
