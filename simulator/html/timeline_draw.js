// SPDX-License-Identifier: Apache-2.0
// How the timeline is drawn. Where a row has more actions than a third of its pixels, each pixel gets the mean of what
// it covers, so that a million actions take as long as the pixels and one pass over those in view.

const drawn = {cells: 0, mixed: 0, messages: 0, chain: 0};

function drawLanes(line, surface) {
  const {g} = surface;
  drawn.cells = 0;
  drawn.mixed = 0;
  drawn.messages = 0;
  const right = MARGIN + line.width;
  const bottom = AXIS + line.numRows * line.rowHeight;
  timeAxis(surface, line.from, line.to, MARGIN, right, AXIS / 2, AXIS, bottom);
  g.save();
  g.beginPath();
  g.rect(0, AXIS, surface.width, bottom - AXIS);
  g.clip();
  const last = Math.min(facts.pp - 1, Math.ceil(line.top + line.numRows));
  // Rows thinner than a pixel: one rank per pixel, the first of those that share it.
  const every = Math.max(1, Math.ceil(1 / line.rowHeight / surface.ratio));
  const texts = [];
  for (let rank = Math.floor(line.top); rank <= last; rank += every) {
    drawRow(line, surface, rank, every, texts);
  }
  drawNames(line, surface, last);
  drawLeftOut(line, surface, facts.actions, bottom);
  if (texts.length < 3000) {
    surface.font(Math.min(11, Math.max(8, line.rowHeight * 0.5)));
    g.textAlign = 'center';
    g.textBaseline = 'middle';
    for (const [text, x, y, ink] of texts) {
      g.fillStyle = ink;
      g.fillText(text, x, y);
    }
  }
  g.beginPath();
  g.rect(MARGIN, AXIS, line.width, bottom - AXIS);
  g.clip();
  if (line.showMessages) drawArrows(line, surface);
  if (line.showChain) drawChain(line, surface);
  if (line.selected >= 0) drawSelection(line, surface);
  if (line.span) {
    g.fillStyle = palette.focus;
    g.globalAlpha = 0.2;
    g.fillRect(line.xOf(line.span[0]), AXIS, (line.span[1] - line.span[0]) * line.scale, bottom - AXIS);
  }
  g.restore();
}

function drawNames(line, surface, last) {
  const {g} = surface;
  g.clearRect(0, AXIS, MARGIN, surface.height);
  const height = Math.min(11, line.rowHeight - 1);
  const every = height >= 8 ? 1 : Math.ceil(10 / line.rowHeight);
  surface.font(Math.max(8, height));
  for (let rank = Math.ceil(line.top / every) * every; rank <= last; rank += every) {
    surface.text(`rank ${rank}`, MARGIN - 5, line.yOf(rank) + line.rowHeight / 2, {align: 'right'});
  }
}

// Where the page holds no events.
function drawLeftOut(line, surface, stream, bottom) {
  if (stream.left_out_from === undefined) return;
  const from = Math.max(MARGIN, line.xOf(stream.left_out_from));
  const to = Math.min(MARGIN + line.width, line.xOf(stream.left_out_to));
  if (to <= from) return;
  const {g} = surface;
  g.fillStyle = palette.page;
  g.fillRect(from, AXIS, to - from, bottom - AXIS);
  surface.line(from, AXIS, from, bottom, palette.muted);
  surface.line(to, AXIS, to, bottom, palette.muted);
  if (to - from > 90) surface.text('not in this page', (from + to) / 2, (AXIS + bottom) / 2, {align: 'center'});
}

function drawRow(line, surface, rank, every, texts) {
  const {actions} = line;
  const {g, ratio} = surface;
  const first = actions.first[rank];
  const end = actions.first[rank + 1];
  const gap = line.rowHeight >= 6 ? 1 : 0;
  const full = line.rowHeight * every - gap;
  const height = line.showMessages ? Math.ceil(full * 0.62) : full;
  const y = line.yOf(rank);
  g.fillStyle = palette.outside;
  g.fillRect(MARGIN, y, line.width, full);
  if (first === end) return;
  const busyFrom = Math.max(line.from, actions.start[first]);
  const busyTo = Math.min(line.to, line.endOf(end - 1));
  if (busyTo > busyFrom) {
    g.fillStyle = palette.idle;
    g.fillRect(line.xOf(busyFrom), y, (busyTo - busyFrom) * line.scale, height);
  }
  const low = Math.max(first, firstAbove(actions.start, line.from, first, end) - 1);
  const high = Math.min(end, firstAbove(actions.start, line.to, low, end) + 1);  // one more for its waiting
  if (high - low > line.width * ratio / 3) mixRow(line, surface, low, high, y, height);
  else drawCells(line, surface, low, high, y, height, texts);
  if (line.showMessages) {
    const thin = Math.max(1, (full - height - 1) / 2);
    drawNoMessages(line, surface, y + height, full - height);
    messageRow(line, surface, line.sends, rank, y + height + 1, thin, palette.send);
    messageRow(line, surface, line.receives, rank, y + height + 1 + thin, thin, palette.receive);
  }
}

function drawCells(line, surface, low, high, y, height, texts) {
  const {actions} = line;
  const {g} = surface;
  const right = MARGIN + line.width;
  const labelled = height >= 8;
  drawn.cells += high - low;
  for (let i = low; i < high; i += 1) {
    const start = actions.start[i];
    let x = line.xOf(start);
    if (actions.exposed[i] > 0) {
      const from = Math.max(MARGIN, line.xOf(start - actions.exposed[i]));
      if (x > from) {
        g.fillStyle = x - from > 3 ? palette.hatch : palette.wait;
        g.fillRect(from, y, Math.min(x, right) - from, height);
      }
    }
    const end = Math.min(right, line.xOf(start + actions.duration[i]));
    x = Math.max(MARGIN, x);
    if (end <= x) continue;
    const cell = palette.cells[actions.op[i]][palette.stageShade[actions.stage[i]]];
    g.fillStyle = cell.fill;
    const width = end - x;
    g.fillRect(x, y, width > 4 ? width - 0.7 : width, height);
    if (labelled && width > 17) {
      const long = width > 46 && facts.vp > 1;
      texts.push([long ? line.name(i) : String(actions.microbatch[i]), x + width / 2, y + height / 2 + 0.5, cell.ink]);
    }
  }
}

// Where the page holds actions and no messages.
function drawNoMessages(line, surface, y, height) {
  const {left_out_from: from, left_out_to: to} = facts.messages;
  if (from === undefined) return;
  const x = Math.max(MARGIN, line.xOf(from));
  const width = Math.min(MARGIN + line.width, line.xOf(to)) - x;
  if (width <= 0) return;
  surface.g.fillStyle = palette.page;
  surface.g.fillRect(x, y, width, height);
  if (width < 130 || height < 9) return;
  surface.font(9);
  surface.text('messages not in this page', x + width / 2, y + height / 2, {align: 'center'});
}

// One row of pixels, each the mean of idle, waiting and the colours of the actions it covers.
function mixRow(line, surface, low, high, y, height) {
  const {actions} = line;
  const {ratio} = surface;
  const columns = Math.max(1, Math.round(line.width * ratio));
  const scale = columns / (line.to - line.from);
  const red = new Float32Array(columns);
  const green = new Float32Array(columns);
  const blue = new Float32Array(columns);
  const covered = new Float32Array(columns);
  const wait = parseColour(palette.wait);
  drawn.mixed += high - low;
  const cover = (from, to, rgb) => {
    const a = Math.max(0, (from - line.from) * scale);
    const b = Math.min(columns, (to - line.from) * scale);
    if (b <= a) return;
    const begin = Math.floor(a);
    if (b <= begin + 1) {  // within one pixel, as most are where there are many
      const share = b - a;
      red[begin] += share * rgb[0];
      green[begin] += share * rgb[1];
      blue[begin] += share * rgb[2];
      covered[begin] += share;
      return;
    }
    const last = Math.min(columns - 1, Math.floor(b));
    for (let c = begin; c <= last; c += 1) {
      const share = Math.min(b, c + 1) - Math.max(a, c);
      red[c] += share * rgb[0];
      green[c] += share * rgb[1];
      blue[c] += share * rgb[2];
      covered[c] += share;
    }
  };
  for (let i = low; i < high; i += 1) {
    const start = actions.start[i];
    if (actions.exposed[i] > 0) cover(start - actions.exposed[i], start, wait);
    cover(start, start + actions.duration[i], palette.cells[actions.op[i]][palette.stageShade[actions.stage[i]]].rgb);
  }
  const idle = parseColour(palette.idle);
  const outside = parseColour(palette.outside);
  const rowFrom = actions.start[low];
  const rowTo = line.endOf(high - 1);
  const pixels = Math.max(1, Math.round(height * ratio));
  const image = surface.g.createImageData(columns, pixels);
  for (let c = 0; c < columns; c += 1) {
    const time = line.from + (c + 0.5) / scale;
    const rest = Math.max(0, 1 - covered[c]);
    const ground = time < rowFrom || time > rowTo ? outside : idle;
    image.data[c * 4] = red[c] + rest * ground[0];
    image.data[c * 4 + 1] = green[c] + rest * ground[1];
    image.data[c * 4 + 2] = blue[c] + rest * ground[2];
    image.data[c * 4 + 3] = 255;
  }
  for (let row = 1; row < pixels; row += 1) image.data.copyWithin(row * columns * 4, 0, columns * 4);
  putClipped(surface, image, Math.round(MARGIN * ratio), Math.round(y * ratio));
}

// putImageData knows no clip: what would reach into the axis is cut off here.
function putClipped(surface, image, x, y) {
  const hidden = Math.max(0, Math.ceil(AXIS * surface.ratio) - y);
  if (hidden < image.height) surface.g.putImageData(image, x, y, 0, hidden, image.width, image.height - hidden);
}

function messagesInView(line, index, rank) {
  const first = index.first[rank];
  const end = index.first[rank + 1];
  return [firstAbove(index.starts, line.from - line.longest, first, end), firstAbove(index.starts, line.to, first, end)];
}

function messageRow(line, surface, index, rank, y, height, colour) {
  const {messages} = line;
  const {g} = surface;
  const isSend = index === line.sends;
  const [low, high] = messagesInView(line, index, rank);
  const endOf = (m) => (isSend && messages.sent[m] > messages.start[m] ? messages.sent[m] : messages.arrived[m]);
  drawn.messages += high - low;
  g.fillStyle = colour;
  if (high - low <= line.width / 2) {
    for (let i = low; i < high; i += 1) {
      const m = index.items[i];
      const from = Math.max(MARGIN, line.xOf(messages.start[m]));
      const width = Math.min(MARGIN + line.width, line.xOf(endOf(m))) - from;
      g.globalAlpha = line.transfers.bulk[messages.transfer[m]] ? 0.55 : 0.95;
      if (width > 0) g.fillRect(from, y, Math.max(0.7, width), height);
    }
    g.globalAlpha = 1;
    return;
  }
  const columns = Math.ceil(line.width);
  const covered = new Float32Array(columns + 1);
  for (let i = low; i < high; i += 1) {
    const m = index.items[i];
    const a = Math.max(0, line.xOf(messages.start[m]) - MARGIN);
    const b = Math.min(columns, line.xOf(endOf(m)) - MARGIN);
    for (let c = Math.floor(a); c < b; c += 1) covered[c] += Math.min(b, c + 1) - Math.max(a, c);
  }
  for (let c = 0; c < columns; c += 1) {
    if (covered[c] <= 0) continue;
    g.globalAlpha = Math.min(1, 0.25 + 0.75 * Math.sqrt(covered[c]));
    g.fillRect(MARGIN + c, y, 1, height);
  }
  g.globalAlpha = 1;
}

function drawArrow(line, surface, m, colour, width) {
  const {messages} = line;
  const from = line.sender(m);
  const to = line.receiver(m);
  const x1 = line.xOf(messages.start[m]);
  const x2 = line.xOf(messages.arrived[m]);
  const middle = line.showMessages ? line.rowHeight * 0.8 : line.rowHeight / 2;
  const y1 = line.yOf(from) + middle;
  const y2 = line.yOf(to) + middle;
  const {g} = surface;
  surface.line(x1, y1, x2, y2, colour, width);
  const angle = Math.atan2(y2 - y1, x2 - x1);
  g.fillStyle = colour;
  g.beginPath();
  g.moveTo(x2, y2);
  g.lineTo(x2 - 7 * Math.cos(angle - 0.4), y2 - 7 * Math.sin(angle - 0.4));
  g.lineTo(x2 - 7 * Math.cos(angle + 0.4), y2 - 7 * Math.sin(angle + 0.4));
  g.fill();
}

// Arrows of all messages, where they can be told apart.
function drawArrows(line, surface) {
  const inView = [];
  for (let rank = Math.floor(line.top); rank < Math.min(facts.pp, line.top + line.numRows); rank += 1) {
    const [low, high] = messagesInView(line, line.sends, rank);
    if (inView.length + high - low > 160) return;
    for (let i = low; i < high; i += 1) inView.push(line.sends.items[i]);
  }
  surface.g.globalAlpha = 0.6;
  for (const m of inView) drawArrow(line, surface, m, line.messages.backward[m] ? palette.receive : palette.send, 1);
  surface.g.globalAlpha = 1;
}

// The longest chain: along the foot of the rows that compute, from row to row with its messages.
function drawChain(line, surface) {
  const {path} = line;
  const foot = (rank) => line.yOf(rank) + Math.max(1, (line.showMessages ? Math.ceil(line.rowHeight * 0.62) : line.rowHeight) - 2.5);
  const first = firstAbove(path.end, line.from, 0, path.end.length);
  drawn.chain = 0;
  for (let i = first; i < path.start.length && path.start[i] < line.to; i += 1) {
    const isLong = path.to[i] === path.rank[i] && !path.isWait[i];
    surface.line(line.xOf(path.start[i]), foot(path.rank[i]), line.xOf(path.end[i]), foot(path.to[i]), palette.mark, isLong ? 3 : 1.5);
    drawn.chain += 1;
  }
}

// All actions of the selected one's microbatch, its messages, and itself.
function drawSelection(line, surface) {
  const {actions} = line;
  const {g} = surface;
  const microbatch = actions.microbatch[line.selected];
  const height = line.rowHeight - (line.rowHeight >= 6 ? 1 : 0);
  const outline = (i, rank, colour, width) => {
    const x = line.xOf(actions.start[i]);
    g.strokeStyle = colour;
    g.lineWidth = width;
    g.strokeRect(x, line.yOf(rank) + width / 2, Math.max(1.5, actions.duration[i] * line.scale - 0.7), Math.max(1, height - width));
  };
  let left = 6000;
  for (let rank = Math.floor(line.top); rank < Math.min(facts.pp, line.top + line.numRows + 1); rank += 1) {
    const first = actions.first[rank];
    const low = Math.max(first, firstAbove(actions.start, line.from, first, actions.first[rank + 1]) - 1);
    for (let i = low; i < actions.first[rank + 1] && actions.start[i] < line.to; i += 1) {
      if (actions.microbatch[i] === microbatch && (left -= 1) > 0) outline(i, rank, palette.ink, 1);
    }
  }
  for (const {m, incoming} of line.messagesOf(line.selected)) {
    drawArrow(line, surface, m, incoming ? palette.receive : palette.send, 1.5);
  }
  outline(line.selected, line.rankOf(line.selected), palette.mark, 2.5);
}

// How busy all ranks together are over the whole step, by operation, and which part of it the timeline shows.
function drawOverview(line, surface) {
  const {g} = surface;
  const width = Math.max(1, surface.width - MARGIN - 1);
  const columns = Math.ceil(width);
  if (!line.load || line.load[0].length !== columns) line.load = loadOf(line.actions, columns);
  const height = surface.height - 2;
  g.fillStyle = palette.outside;
  g.fillRect(MARGIN, 1, width, height);
  for (let c = 0; c < columns; c += 1) {
    let y = 1 + height;
    for (let op = 0; op < OPS.length; op += 1) {
      const part = line.load[op][c] * height;
      if (part <= 0) continue;
      g.fillStyle = palette[OPS[op]];
      g.fillRect(MARGIN + c, y - part, 1, part);
      y -= part;
    }
  }
  const from = MARGIN + line.from / STEP * width;
  const to = MARGIN + line.to / STEP * width;
  g.fillStyle = palette.paper;
  g.globalAlpha = 0.65;
  g.fillRect(MARGIN, 0, from - MARGIN, surface.height);
  g.fillRect(to, 0, MARGIN + width - to, surface.height);
  g.globalAlpha = 1;
  g.strokeStyle = palette.ink;
  g.lineWidth = 1.5;
  g.strokeRect(from + 0.75, 0.75, Math.max(2, to - from - 1.5), surface.height - 1.5);
  surface.text('all', MARGIN - 5, surface.height / 2, {align: 'right'});
}

// [op][column]: the share of the ranks that compute it there.
function loadOf(actions, columns) {
  const load = OPS.map(() => new Float32Array(columns));
  const scale = columns / STEP;
  for (let i = 0; i < actions.count; i += 1) {
    const a = actions.start[i] * scale;
    const b = Math.min(columns, a + actions.duration[i] * scale);
    const row = load[actions.op[i]];
    for (let c = Math.floor(a); c < b; c += 1) row[c] += (Math.min(b, c + 1) - Math.max(a, c)) / facts.pp;
  }
  return load;
}

function timelineLegend(line) {
  const used = OPS.filter((_, op) => line.actions.op.includes(op));
  const entries = used.map((name) => [`${name} ${OP_NAMES[OPS.indexOf(name)]}`, palette[name]]);
  entries.push(['waiting for messages', palette.wait, true], ['idle', palette.idle]);
  if (line.showMessages) entries.push(['sending', palette.send], ['receiving', palette.receive]);
  if (line.showChain) entries.push(['longest chain', palette.mark]);
  if (facts.vp > 1) entries.push([`paler: later of ${facts.vp} virtual stages`, 'transparent']);
  legend('timeline-legend', entries);
}
