// SPDX-License-Identifier: Apache-2.0
// Starts the page, and keeps what is looked at in the address: #from=..&to=..&rank=..&action=..&messages=1&chain=1&theme=dark,
// so that a link to the page shows the same place.

function applyTheme(choice) {
  if (choice === 'system') delete root.dataset.theme;
  else root.dataset.theme = choice;
  byId('theme').textContent = `theme: ${choice}`;
}

// What is on the page, for tests and the curious at the console.
const page = {};

function start() {
  root.dataset.script = '';
  const address = new URLSearchParams(location.hash.slice(1));
  const themes = ['system', 'light', 'dark'];
  let theme = Math.max(0, themes.indexOf(address.get('theme')));
  applyTheme(themes[theme]);
  readPalette();

  const transfers = readTransfers();
  const line = new Timeline(readActions(), readMessages(transfers), transfers, readPath());
  timelineLegend(line);
  const series = readMemory();
  const memory = series.length > 0 ? new MemoryChart(line, series) : null;
  if (!memory) byId('memory-chart').closest('section').hidden = true;
  splitChart();
  hopsChart();
  linksChart();
  loadsChart();
  overheadChart();

  const repaint = () => {
    readPalette();
    timelineLegend(line);
    if (memory) memory.fillLive();
    for (const surface of surfaces) surface.redraw();
  };
  byId('theme').addEventListener('click', () => {
    theme = (theme + 1) % themes.length;
    applyTheme(themes[theme]);
    repaint();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', repaint);
  // Paper is light.
  window.addEventListener('beforeprint', () => {
    applyTheme('light');
    readPalette();
    for (const surface of surfaces) surface.drawNow();
  });
  window.addEventListener('afterprint', () => {
    applyTheme(themes[theme]);
    repaint();
  });

  Object.assign(page, {line, memory, transfers});
  goTo(line, memory, address);
  for (const surface of surfaces) surface.drawNow();
  Object.assign(root.dataset, {
    ready: 'yes',
    actions: String(line.actions.count),
    messages: String(line.messages.count),
    transfers: String(transfers.count),
    memoryPoints: String(series.reduce((sum, one) => sum + one.times.length, 0)),
    surfaces: String(surfaces.filter((surface) => surface.numDrawn > 0).length),
    cells: String(drawn.cells),
    mixed: String(drawn.mixed),
  });
}

function goTo(line, memory, address) {
  const number = (name, low, high) => {
    const value = Number(address.get(name));
    return address.get(name) !== null && value >= low && value <= high ? value : undefined;
  };
  if (address.get('messages') === '1') line.setMessages(true);
  if (address.get('chain') === '1') line.setChain(true);
  const from = number('from', 0, STEP);
  const to = number('to', 0, STEP);
  const rank = number('rank', 0, facts.pp - 1);
  const action = number('action', 0, 2 ** 31);
  if (rank !== undefined && memory) memory.setRank(Math.floor(rank));
  const index = rank === undefined || action === undefined ? -1 : line.actions.first[Math.floor(rank)] + Math.floor(action);
  line.select(index >= 0 && index < line.actions.first[Math.floor(rank) + 1] ? index : -1, false);
  if (from !== undefined && to !== undefined && to > from) line.show(from, to);
  const keep = () => {
    const now = new URLSearchParams(location.hash.slice(1));
    const set = (name, value) => (value === undefined ? now.delete(name) : now.set(name, value));
    const whole = line.from === 0 && line.to === STEP;
    set('from', whole ? undefined : String(Math.floor(line.from)));
    set('to', whole ? undefined : String(Math.ceil(line.to)));
    const selectedRank = line.selected >= 0 ? line.rankOf(line.selected) : undefined;
    set('rank', selectedRank);
    set('action', selectedRank === undefined ? undefined : line.selected - line.actions.first[selectedRank]);
    set('messages', line.showMessages ? '1' : undefined);
    set('chain', line.showChain ? '1' : undefined);
    try {
      history.replaceState(null, '', `#${now}`);
    } catch (refused) {
      // Some browsers allow no changes to the address of a local file; then a view has no link of its own.
    }
  };
  let timer = 0;
  line.onView.push(() => {
    clearTimeout(timer);
    timer = setTimeout(keep, 400);
  });
}

start();
