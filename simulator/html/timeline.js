// SPDX-License-Identifier: Apache-2.0
// The timeline's state and what one does with it: which span and ranks are shown, what is selected, what is under the
// pointer.

const AXIS = 20;    // pixels above the rows
const MARGIN = 46;  // left of them, for the names of ranks
const STEP = Math.max(1, facts.step);

class Timeline {
  constructor(actions, messages, transfers, path) {
    this.actions = actions;
    this.messages = messages;
    this.transfers = transfers;
    this.path = path;
    this.from = 0;
    this.to = STEP;
    this.top = 0;           // the first row, may be a fraction
    this.rowHeight = 0;
    this.showMessages = false;
    this.showChain = false;
    this.allRanks = false;
    this.selected = -1;     // an action
    this.onView = [];       // called when the span changes
    this.onRank = [];       // called with the rank of what is selected
    this.indexMessages();
    this.overview = new Surface('overview', (surface) => drawOverview(this, surface));
    this.surface = new Surface('lanes', (surface) => drawLanes(this, surface));
    this.layOut();
    this.listen();
  }

  // Messages by the rank that sends and by the one that receives, each in order of start.
  indexMessages() {
    const {messages, transfers} = this;
    const order = new Uint32Array(messages.count).map((_, i) => i).sort((a, b) => messages.start[a] - messages.start[b]);
    const make = (rankOf) => {
      const first = new Int32Array(facts.pp + 1);
      for (let m = 0; m < messages.count; m += 1) first[rankOf(m) + 1] += 1;
      for (let r = 0; r < facts.pp; r += 1) first[r + 1] += first[r];
      const next = first.slice();
      const items = new Uint32Array(messages.count);
      const starts = new Float64Array(messages.count);
      for (const m of order) {
        const at = next[rankOf(m)]++;
        items[at] = m;
        starts[at] = messages.start[m];
      }
      return {first, items, starts};
    };
    this.sender = (m) => facts.chunk_rank[messages.backward[m] ? transfers.to[messages.transfer[m]] : transfers.from[messages.transfer[m]]];
    this.receiver = (m) => facts.chunk_rank[messages.backward[m] ? transfers.from[messages.transfer[m]] : transfers.to[messages.transfer[m]]];
    this.sends = make(this.sender);
    this.receives = make(this.receiver);
    this.longest = 0;
    for (let m = 0; m < messages.count; m += 1) this.longest = Math.max(this.longest, messages.arrived[m] - messages.start[m]);
  }

  layOut() {
    const most = Math.max(300, Math.min(680, window.innerHeight - 200));
    const least = this.showMessages ? 15 : 10;
    const full = this.showMessages ? 46 : 34;
    this.rowHeight = Math.min(full, this.allRanks ? most / facts.pp : Math.max(least, most / facts.pp));
    const rows = Math.min(facts.pp, Math.floor(most / this.rowHeight + 1e-9));
    this.surface.setHeight(AXIS + Math.ceil(rows * this.rowHeight) + 2);
    this.numRows = rows;
    this.top = this.clampTop(this.top);
    byId('all-ranks').parentElement.hidden = facts.pp * least <= most;
  }

  clampTop(top) {
    return Math.max(0, Math.min(facts.pp - this.numRows, top));
  }

  get width() {
    return Math.max(1, this.surface.width - MARGIN - 1);
  }
  get scale() {
    return this.width / (this.to - this.from);
  }
  timeAt(x) {
    return this.from + (x - MARGIN) / this.scale;
  }
  xOf(time) {
    return MARGIN + (time - this.from) * this.scale;
  }
  rankAt(y) {
    const rank = Math.floor((y - AXIS) / this.rowHeight + this.top);
    return y >= AXIS && rank >= 0 && rank < facts.pp ? rank : -1;
  }
  yOf(rank) {
    return AXIS + (rank - this.top) * this.rowHeight;
  }

  show(from, to) {
    const span = Math.max(Math.min(STEP, to - from), Math.min(STEP, 20));
    const begin = Math.max(0, Math.min(STEP - span, from));
    this.from = begin;
    this.to = begin + span;
    this.changed();
  }
  changed() {
    this.surface.redraw();
    this.overview.redraw();
    for (const call of this.onView) call();
  }
  zoom(factor, x = MARGIN + this.width / 2) {
    const time = this.timeAt(x);
    this.show(time - (time - this.from) * factor, time + (this.to - time) * factor);
  }
  pan(share) {
    const shift = (this.to - this.from) * share;
    this.show(this.from + shift, this.to + shift);
  }
  scrollTo(rank) {
    if (rank < this.top) this.top = this.clampTop(rank);
    if (rank + 1 > this.top + this.numRows) this.top = this.clampTop(rank + 1 - this.numRows);
  }

  // The last action of the rank that starts no later than `time`, or the first.
  actionAt(rank, time) {
    const {first, start} = this.actions;
    if (first[rank] === first[rank + 1]) return -1;
    return Math.max(first[rank], firstAbove(start, time, first[rank], first[rank + 1]) - 1);
  }
  rankOf(action) {
    return firstAbove(this.actions.first, action, 0, facts.pp + 1) - 1;
  }
  chunkOf(action) {
    const rank = this.rankOf(action);
    return chunkOn(rank, this.actions.stage[action]);
  }
  endOf(action) {
    return this.actions.start[action] + this.actions.duration[action];
  }
  isLeftOut(from, to) {
    const {left_out_from: a, left_out_to: b} = facts.actions;
    return a !== undefined && from < b && to > a && to - from > (b - a) / 2;
  }

  // What is drawn at a place: an action, or the idle time before one.
  hit(x, y) {
    const rank = this.rankAt(y);
    if (rank < 0 || x < MARGIN) return null;
    const time = this.timeAt(x);
    const action = this.actionAt(rank, time);
    if (action < 0) return null;
    if (time >= this.actions.start[action] && time < this.endOf(action)) return {rank, action};
    if (time < this.actions.start[action]) return {rank, idleBefore: action};
    if (action + 1 < this.actions.first[rank + 1]) return {rank, idleBefore: action + 1};
    return {rank, after: action};
  }

  name(action) {
    const {op, microbatch} = this.actions;
    return `${this.chunkOf(action)}${OPS[op[action]]}${microbatch[action]}`;
  }

  messageOf(transferAndBackward, microbatch, receiver) {
    const {first, items} = this.receives;
    const {messages} = this;
    for (let i = first[receiver]; i < first[receiver + 1]; i += 1) {
      const m = items[i];
      if (messages.transfer[m] * 2 + messages.backward[m] === transferAndBackward && messages.microbatch[m] === microbatch) return m;
    }
    return -1;
  }

  // Messages that go into the chunk and microbatch of an action on its rank, or come out of it.
  messagesOf(action) {
    const {messages, transfers, actions} = this;
    const rank = this.rankOf(action);
    const chunk = this.chunkOf(action);
    const backward = actions.op[action] > 0 ? 1 : 0;
    const found = [];
    for (const [index, incoming] of [[this.receives, true], [this.sends, false]]) {
      for (let i = index.first[rank]; i < index.first[rank + 1]; i += 1) {
        const m = index.items[i];
        if (messages.microbatch[m] !== actions.microbatch[action] || messages.backward[m] !== backward) continue;
        const end = incoming !== (backward === 1) ? transfers.to : transfers.from;
        if (end[messages.transfer[m]] === chunk) found.push({m, incoming});
      }
    }
    return found;
  }

  describe(action) {
    const {actions} = this;
    const rank = this.rankOf(action);
    const chunk = this.chunkOf(action);
    const start = actions.start[action];
    const grain = STEP / 1e6;
    const time = (ticks) => timeText(ticks, grain, STEP);
    const lines = [
      `${this.name(action)}: ${OP_NAMES[actions.op[action]]}, microbatch ${actions.microbatch[action]}, chunk ${chunk} (rank ${rank}, virtual stage ${actions.stage[action]})`,
      `${time(start)} to ${time(this.endOf(action))}, takes ${timeText(actions.duration[action])}`,
    ];
    return lines.concat(this.describeWait(action));
  }

  describeWait(action) {
    const {actions, transfers, messages} = this;
    const rank = this.rankOf(action);
    const before = action > actions.first[rank] ? this.endOf(action - 1) : 0;
    const idle = actions.start[action] - before;
    if (this.isLeftOut(before, actions.start[action])) return ['what the rank did before is not in this page'];
    if (idle <= 0) return ['started as soon as the rank was free'];
    const exposed = actions.exposed[action];
    const lines = [`the rank was idle for ${timeText(idle)} before it${exposed > 0 ? `, ${timeText(exposed)} of it exposed communication` : ''}`];
    const awaited = actions.awaited[action];
    if (awaited < 0) return lines;
    const backward = awaited & 1;
    const transfer = awaited >> 1;
    const [from, to] = backward ? [transfers.to[transfer], transfers.from[transfer]] : [transfers.from[transfer], transfers.to[transfer]];
    const microbatch = actions.awaitedMicrobatch[action];
    const units = transfers.units[transfer];
    const bytes = units * (backward ? facts.gradient_bytes : facts.value_bytes);
    lines.push(`waited for ${backward ? 'gradients' : 'values'} of microbatch ${microbatch} from chunk ${from} (rank ${facts.chunk_rank[from]}) to chunk ${to} (rank ${facts.chunk_rank[to]}): ${units} unit${units === 1 ? '' : 's'}, ${byteText(bytes)}${transfers.bulk[transfer] ? ', not urgent' : ''}`);
    let m = this.messageOf(awaited, microbatch, rank);
    if (m < 0) m = this.messageOf(awaited, microbatch, facts.chunk_rank[to]);
    if (m >= 0) {
      const grain = STEP / 1e6;
      const queued = messages.start[m] - Math.max(messages.ready[m], messages.posted[m]);
      lines.push(`sender ready ${timeText(messages.ready[m], grain, STEP)}, receive posted ${timeText(messages.posted[m], grain, STEP)}, queued ${timeText(Math.max(0, queued))}, on the way ${timeText(messages.arrived[m] - messages.start[m])}, arrived ${timeText(messages.arrived[m], grain, STEP)}`);
    }
    return lines;
  }

  describeHit(hit) {
    if (!hit) return null;
    if (hit.action !== undefined) return this.describe(hit.action);
    if (hit.idleBefore === undefined) return [`rank ${hit.rank}: done`, `its last action, ${this.name(hit.after)}, ended at ${timeText(this.endOf(hit.after), STEP / 1e6, STEP)}`];
    return [`rank ${hit.rank}: idle before ${this.name(hit.idleBefore)}`, ...this.describeWait(hit.idleBefore)];
  }

  select(action, shown = true) {
    this.selected = action;
    if (action >= 0) {
      const rank = this.rankOf(action);
      this.scrollTo(rank);
      for (const call of this.onRank) call(rank);
      if (shown && (this.endOf(action) < this.from || this.actions.start[action] > this.to)) {
        const middle = this.actions.start[action] + this.actions.duration[action] / 2;
        this.show(middle - (this.to - this.from) / 2, middle + (this.to - this.from) / 2);
      }
    }
    const place = byId('inspect');
    if (action >= 0) fillLines(place, this.describe(action));
    else fillLines(place, ['Nothing is selected', 'Click an action to see what it waited for; all actions of its microbatch are then marked.']);
    this.changed();
  }

  listen() {
    const canvas = this.surface.canvas;
    const pointers = new Map();
    let drag = null;
    canvas.addEventListener('pointerdown', (event) => {
      const [x, y] = this.surface.place(event);
      pointers.set(event.pointerId, x);
      canvas.setPointerCapture(event.pointerId);
      drag = {x, y, from: this.from, to: this.to, top: this.top, moved: false, shift: event.shiftKey, time: this.timeAt(x)};
      if (pointers.size === 2) drag.pinch = Math.abs([...pointers.values()].reduce((a, b) => a - b));
    });
    canvas.addEventListener('pointermove', (event) => {
      const [x, y] = this.surface.place(event);
      if (!drag || !pointers.has(event.pointerId)) {
        showTip(event, this.describeHit(this.hit(x, y)));
        return;
      }
      pointers.set(event.pointerId, x);
      if (pointers.size === 2 && drag.pinch > 0) {
        const distance = Math.max(8, Math.abs([...pointers.values()].reduce((a, b) => a - b)));
        const factor = drag.pinch / distance;
        this.show(drag.time - (drag.time - drag.from) * factor, drag.time + (drag.to - drag.time) * factor);
        drag.moved = true;
        return;
      }
      if (!drag.moved && Math.hypot(x - drag.x, y - drag.y) < 4) return;
      drag.moved = true;
      showTip(event, null);
      canvas.classList.add('dragging');
      if (drag.shift) {
        this.span = [Math.min(drag.time, this.timeAt(x)), Math.max(drag.time, this.timeAt(x))];
        this.surface.redraw();
        return;
      }
      const shift = (drag.x - x) * (drag.to - drag.from) / this.width;
      this.top = this.clampTop(drag.top + (drag.y - y) / this.rowHeight);
      this.show(drag.from + shift, drag.to + shift);
    });
    const release = (event) => {
      pointers.delete(event.pointerId);
      canvas.classList.remove('dragging');
      if (!drag || pointers.size > 0) return;
      if (this.span) {
        const [from, to] = this.span;
        this.span = null;
        this.show(from, to);
      } else if (!drag.moved && event.type === 'pointerup') {
        const hit = this.hit(...this.surface.place(event));
        this.select(hit && hit.action !== undefined ? hit.action : hit && hit.idleBefore !== undefined ? hit.idleBefore : -1);
      }
      drag = null;
    };
    canvas.addEventListener('pointerup', release);
    canvas.addEventListener('pointercancel', release);
    canvas.addEventListener('pointerleave', (event) => showTip(event, null));
    canvas.addEventListener('dblclick', (event) => {
      const hit = this.hit(...this.surface.place(event));
      if (!hit || hit.action === undefined) return this.show(0, STEP);
      const {start, duration} = this.actions;
      return this.show(start[hit.action] - duration[hit.action] * 0.1, this.endOf(hit.action) + duration[hit.action] * 0.1);
    });
    canvas.addEventListener('wheel', (event) => {
      // Without a click or Ctrl the wheel scrolls the page, as everywhere else on it.
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
      event.preventDefault();
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        this.pan((event.deltaX || event.deltaY) / this.width);
      } else {
        this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.004), this.surface.place(event)[0]);
      }
      showTip(event, null);
    }, {passive: false});
    canvas.addEventListener('keydown', (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey || !this.onKey(event.key, event.shiftKey)) return;
      event.preventDefault();
      showTip(event, null);
    });
    byId('zoom-in').addEventListener('click', () => this.zoom(1 / 2));
    byId('zoom-out').addEventListener('click', () => this.zoom(2));
    byId('zoom-all').addEventListener('click', () => this.show(0, STEP));
    byId('show-messages').addEventListener('change', (event) => this.setMessages(event.target.checked));
    byId('show-chain').addEventListener('change', (event) => this.setChain(event.target.checked));
    byId('show-chain').parentElement.hidden = this.path.start.length === 0;
    byId('all-ranks').addEventListener('change', (event) => {
      this.allRanks = event.target.checked;
      this.layOut();
      this.changed();
    });
    let moving = false;
    const centre = (event) => {
      const middle = (this.overview.place(event)[0] - MARGIN) / Math.max(1, this.overview.width - MARGIN - 1) * STEP;
      this.show(middle - (this.to - this.from) / 2, middle + (this.to - this.from) / 2);
    };
    this.overview.canvas.addEventListener('pointerdown', (event) => {
      moving = true;
      this.overview.canvas.setPointerCapture(event.pointerId);
      centre(event);
    });
    this.overview.canvas.addEventListener('pointermove', (event) => moving && centre(event));
    this.overview.canvas.addEventListener('pointerup', () => { moving = false; });
    window.addEventListener('resize', () => {
      this.layOut();
      this.changed();
    });
  }

  setMessages(on) {
    this.showMessages = on;
    byId('show-messages').checked = on;
    timelineLegend(this);
    this.layOut();
    this.changed();
  }

  setChain(on) {
    this.showChain = on && this.path.start.length > 0;
    byId('show-chain').checked = this.showChain;
    timelineLegend(this);
    this.changed();
  }

  // Whether the key means something here.
  onKey(key, shift) {
    const {first} = this.actions;
    const rank = this.selected >= 0 ? this.rankOf(this.selected) : Math.floor(this.top);
    const near = this.selected >= 0 ? this.selected : this.actionAt(rank, this.from);
    switch (key) {
      case 'ArrowLeft': this.pan(shift ? -0.5 : -0.1); return true;
      case 'ArrowRight': this.pan(shift ? 0.5 : 0.1); return true;
      case '+': case '=': this.zoom(1 / 1.5); return true;
      case '-': case '_': this.zoom(1.5); return true;
      case '0': this.show(0, STEP); return true;
      case 'Home': this.show(0, this.to - this.from); return true;
      case 'End': this.show(STEP - (this.to - this.from), STEP); return true;
      case 'c': this.setChain(!this.showChain); return true;
      case 'm': this.setMessages(!this.showMessages); return true;
      case 'Escape': this.select(-1); return true;
      case 'n': if (this.selected < 0) this.select(near); else if (near + 1 < first[rank + 1]) this.select(near + 1); return true;
      case 'p': if (this.selected < 0) this.select(near); else if (near > first[rank]) this.select(near - 1); return true;
      case 'ArrowUp': case 'ArrowDown': {
        const next = rank + (key === 'ArrowUp' ? -1 : 1);
        if (next < 0 || next >= facts.pp) return true;
        const time = this.selected >= 0 ? this.actions.start[this.selected] : (this.from + this.to) / 2;
        this.select(this.actionAt(next, time));
        return true;
      }
      default: return false;
    }
  }
}

// The chunk on a rank with that virtual stage.
const chunksOn = [];
function chunkOn(rank, stage) {
  if (chunksOn.length === 0) {
    facts.chunk_rank.forEach((at, chunk) => { chunksOn[at * facts.vp + facts.chunk_stage[chunk]] = chunk; });
  }
  return chunksOn[rank * facts.vp + stage];
}
