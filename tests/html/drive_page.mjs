// SPDX-License-Identifier: Apache-2.0
//
// drive_page.mjs CHROMIUM PAGE: opens the page in headless Chromium as a reader without a network would, uses it with
// wheel, pointer and keys, and checks what it says. Talks to Chromium over its debugging pipe, needs nothing but node.
// Prints one line per check; ends with 1 if one fails.
import {spawn} from 'node:child_process';
import {mkdtempSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join, resolve} from 'node:path';
import {pathToFileURL} from 'node:url';

const [chromium, page] = process.argv.slice(2);
const profile = mkdtempSync(join(tmpdir(), 'plumb-page-'));
const browser = spawn(chromium, ['--headless', '--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-extensions',
  '--disable-background-networking', '--window-size=1280,1000', `--user-data-dir=${profile}`, '--remote-debugging-pipe',
  'about:blank'], {stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe']});
const limit = setTimeout(() => end('the browser did not answer in time'), 50000);

let failures = 0;
function check(holds, what) {
  if (!holds) failures += 1;
  console.log(`${holds ? 'ok  ' : 'FAIL'} ${what}`);
}
function end(why) {
  clearTimeout(limit);
  if (why) check(false, why);
  browser.once('exit', () => {
    rmSync(profile, {recursive: true, force: true, maxRetries: 5});
    process.exit(failures === 0 ? 0 : 1);
  });
  browser.kill('SIGKILL');
}

// Answers come as JSON ended by a zero byte.
let nextId = 1;
const waiting = new Map();
const events = [];
let received = '';
browser.stdio[4].setEncoding('utf8').on('data', (text) => {
  received += text;
  for (let at = received.indexOf('\0'); at >= 0; at = received.indexOf('\0')) {
    const answer = JSON.parse(received.slice(0, at));
    received = received.slice(at + 1);
    if (waiting.has(answer.id)) waiting.get(answer.id)(answer);
    else events.push(answer);
  }
});
let session;
function send(method, params = {}) {
  const id = nextId++;
  browser.stdio[3].write(`${JSON.stringify({id, method, params, sessionId: session})}\0`);
  return new Promise((done, refuse) => {
    waiting.set(id, (answer) => (answer.error ? refuse(new Error(`${method}: ${answer.error.message}`)) : done(answer.result)));
  });
}
async function evaluate(expression) {
  const {result, exceptionDetails} = await send('Runtime.evaluate', {expression, awaitPromise: true, returnByValue: true});
  if (exceptionDetails) throw new Error(`${expression}: ${exceptionDetails.exception?.description || exceptionDetails.text}`);
  return result.value;
}
const settled = () => evaluate('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))');
const data = async () => ({...(await evaluate('Object.assign({}, document.documentElement.dataset)'))});
const text = (id) => evaluate(`document.getElementById('${id}').innerText`);
async function mouse(type, x, y, more = {}) {
  await send('Input.dispatchMouseEvent', {type, x, y, button: 'left', ...more});
}
async function key(name) {
  for (const type of ['keyDown', 'keyUp']) await send('Input.dispatchKeyEvent', {type, key: name, text: type === 'keyDown' && name.length === 1 ? name : undefined});
  await settled();
}
const spanOf = () => evaluate('page.line.to - page.line.from');

async function drive() {
  const {targetId} = await send('Target.createTarget', {url: 'about:blank'});
  session = (await send('Target.attachToTarget', {targetId, flatten: true})).sessionId;
  await send('Page.enable');
  await send('Runtime.enable');
  await send('Log.enable');
  await send('Network.enable');
  await send('Network.emulateNetworkConditions', {offline: true, latency: 0, downloadThroughput: -1, uploadThroughput: -1});
  const begin = Date.now();
  await send('Page.navigate', {url: pathToFileURL(resolve(page)).href});
  for (let tries = 0; tries < 200; tries += 1) {
    if (await evaluate('document.documentElement.dataset.ready === "yes" || document.documentElement.dataset.errors > 0').catch(() => false)) break;
    await new Promise((done) => setTimeout(done, 50));
  }
  const at = await data();
  check(at.ready === 'yes' && at.errors === '0', `the script ran without an error (${Date.now() - begin} ms)`);
  if (at.ready !== 'yes') return;
  check(Number(at.surfaces) >= 6, `${at.surfaces} charts are drawn`);
  const whole = await spanOf();
  const actions = await evaluate('page.line.actions.count');
  check(actions === Number(at.actions) && actions > 0, `${actions} actions are there`);

  // Where an action of the first rank is drawn.
  const box = await evaluate('(() => { const b = document.getElementById("lanes").getBoundingClientRect(); return {x: b.x, y: b.y, w: b.width, h: b.height}; })()');
  const spot = await evaluate('(() => { const {line} = page; const i = line.actions.first[0]; return {x: line.xOf(line.actions.start[i] + line.actions.duration[i] / 2), y: line.yOf(0) + 3, name: line.name(i)}; })()');
  const [x, y] = [box.x + spot.x, box.y + spot.y];
  await mouse('mouseMoved', x, y);
  await settled();
  const tip = await text('tip');
  check(/microbatch \d+, chunk \d+/.test(tip) && /(idle|started|waited)/.test(tip), `the tip says: ${tip.split('\n')[0]}`);
  await mouse('mousePressed', x, y, {clickCount: 1});
  await mouse('mouseReleased', x, y, {clickCount: 1});
  await settled();
  check(/microbatch/.test(await text('inspect')), 'a click selects the action');

  await send('Input.dispatchMouseEvent', {type: 'mouseWheel', x, y, deltaX: 0, deltaY: -240});
  await settled();
  const zoomed = await spanOf();
  check(zoomed < whole, 'the wheel zooms in after a click');
  const before = await evaluate('page.line.from');
  await mouse('mousePressed', x, y);
  for (let step = 1; step <= 8; step += 1) await mouse('mouseMoved', x - 20 * step, y, {buttons: 1});
  await mouse('mouseReleased', x - 160, y);
  await settled();
  check(await evaluate('page.line.from') > before && Math.abs(await spanOf() - zoomed) < 1e-6 * whole + 1, 'dragging pans');
  await evaluate('document.getElementById("lanes").focus()');
  await key('+');
  check(await spanOf() < zoomed, 'the key + zooms in');
  await key('0');
  check(await spanOf() === whole, 'the key 0 shows the whole step');
  const first = await text('inspect');
  await key('n');
  check(await text('inspect') !== first, 'the key n goes to the next action');
  await key('m');
  check(await evaluate('page.line.showMessages && document.getElementById("show-messages").checked'), 'the key m shows messages');
  await key('c');
  const chain = await evaluate('({count: page.line.path.start.length, ends: page.line.path.end.every((end, i, all) => end === (i + 1 < all.length ? page.line.path.start[i + 1] : STEP)), drawn: drawn.chain})');
  check(chain.count > 0 && chain.ends && chain.drawn > 0 && chain.drawn <= chain.count, `the key c shows the longest chain, ${chain.drawn} of ${chain.count} pieces without a gap`);
  await key('Escape');
  check(/Nothing is selected/.test(await text('inspect')), 'Escape clears');

  // The slowest of what a reader does: whole step with messages, and panning half-way in.
  const frames = await evaluate(`(() => {
    const times = [];
    const draw = () => { const t = performance.now(); page.line.surface.drawNow(); times.push(performance.now() - t); };
    for (let i = 0; i < 3; i += 1) draw();
    const middle = page.line.to / 2;
    for (let k = 1; k <= 10; k += 1) { page.line.show(middle * (1 - 0.5 ** k), middle * (1 + 0.5 ** k)); draw(); }
    page.line.show(0, middle * 2);
    return times.map((t) => Math.round(t * 10) / 10);
  })()`);
  console.log(`     ms per drawing of the timeline, whole step three times, then ever closer: ${frames.join(' ')}`);
  check(Math.max(...frames) < 1000, 'no drawing takes a second');

  const palettes = {};
  const paletteNow = () => evaluate('JSON.stringify(palette)');
  const system = (scheme) => send('Emulation.setEmulatedMedia', {features: [{name: 'prefers-color-scheme', value: scheme}]});
  for (const scheme of ['dark', 'light']) {
    await system(scheme);
    await settled();
    palettes[scheme] = await paletteNow();
    const paper = await evaluate('palette.paper');
    check(scheme === 'dark' ? parseInt(paper.slice(1, 3), 16) < 60 : paper === '#ffffff', `the colours follow the system: ${scheme} is on ${paper}`);
  }
  for (const theme of ['light', 'dark', 'system']) {
    await evaluate('document.getElementById("theme").click()');
    await system(theme === 'light' ? 'dark' : 'light');
    await settled();
    check(await paletteNow() === palettes[theme === 'system' ? 'light' : theme], `the button's ${theme} has all colours of ${theme}`);
  }
  const printed = await send('Page.printToPDF', {printBackground: true});
  check(printed.data.length > 20000, `it prints (${Math.round(printed.data.length * 0.75 / 1024)} KiB of PDF)`);

  check((await data()).errors === '0', 'no error in all of that');

  await send('Emulation.setScriptExecutionDisabled', {value: true});
  await send('Page.reload');
  let bare = {};
  for (let tries = 0; tries < 100 && !bare.done; tries += 1) {
    await new Promise((done) => setTimeout(done, 50));
    bare = await evaluate(`({done: document.readyState === 'complete' && !document.documentElement.dataset.ready,
      drawing: (document.querySelector('noscript img') || {naturalWidth: -1}).naturalWidth, rows: document.querySelectorAll('tr').length,
      canvas: document.getElementById('lanes').clientWidth})`).catch(() => ({}));
  }
  check(bare.done && bare.drawing !== 0 && bare.rows > 3 && bare.canvas === 0, `without scripts there are ${bare.rows} rows of tables${bare.drawing > 0 ? ' and a drawing' : ''}`);

  const requests = events.filter((event) => event.method === 'Network.requestWillBeSent').map((event) => event.params.request.url)
    .filter((url) => !url.startsWith('file:') && !url.startsWith('data:') && !url.startsWith('about:') && !url.startsWith('blob:'));
  check(requests.length === 0, `nothing is asked of a network ${requests.join(' ')}`);
  const complaints = events.filter((event) => (event.method === 'Log.entryAdded' && event.params.entry.level === 'error') || event.method === 'Runtime.exceptionThrown');
  check(complaints.length === 0, `the browser has nothing to complain about ${complaints.map((event) => JSON.stringify(event.params).slice(0, 300)).join(' ')}`);
}

drive().then(() => end(), (error) => end(String(error)));
