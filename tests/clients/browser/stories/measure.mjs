// What the console costs whoever opens it: bytes and time of a first look, and how a list of many machines feels. Nothing is judged here;
// the last line is all that was found, as JSON.

import { fleet, nameOf, scrolled } from "../fleet.mjs";
import { House } from "../house.mjs";

const ROUNDS = 7;
const LIST_ROUNDS = 5;

/** Notes when the page can be used: what is waited for is drawn, and nothing keeps the browser from hearing a key. */
function noteWhenUsable(selector) {
  const look = () => {
    if (globalThis.usableAfter !== undefined || !document.querySelector(selector)) return;
    globalThis.usableAfter = null;
    requestAnimationFrame(() => requestIdleCallback(() => (globalThis.usableAfter = performance.now())));
  };
  new MutationObserver(look).observe(document, { childList: true, subtree: true, attributes: true });
}

/** Opens a page in a browser that has nothing of it yet, and then once more. */
async function open(house, path, selector, state) {
  const context = await house.browser.newContext({ viewport: { width: 1280, height: 800 }, ...(state ? { storageState: state } : {}) });
  const page = await context.newPage();
  await page.addInitScript(noteWhenUsable, selector);
  const session = await context.newCDPSession(page);
  await session.send("Network.enable");
  const ours = new Map();
  let bytes = 0;
  session.on("Network.requestWillBeSent", ({ requestId, request }) => ours.set(requestId, new URL(request.url).pathname.startsWith("/dashboard")));
  session.on("Network.loadingFinished", ({ requestId, encodedDataLength }) => {
    if (ours.get(requestId)) bytes += encodedDataLength;
  });
  const usable = async () => (await page.waitForFunction(() => globalThis.usableAfter ?? false)).jsonValue();
  await page.goto(`${house.url}/dashboard/${path}`);
  const cold = await usable();
  await page.waitForLoadState("networkidle");
  const first = bytes;
  await page.reload();
  const warm = await usable();
  await context.close();
  return { cold, warm, bytes: first };
}

async function repeatedly(rounds, measure) {
  const found = [];
  for (let round = 0; round < rounds; round += 1) found.push(await measure(round));
  return found;
}

/** Milliseconds from a key until the table shows what it left over, drawn. */
async function filterFor(page, text, rows) {
  return page.evaluate(
    ([wanted, count]) =>
      new Promise((resolve) => {
        const field = document.querySelector("[data-filter]");
        const status = document.querySelector(".tools [role=status]");
        const began = performance.now();
        const look = () => {
          if (Number(status.textContent.split(" ")[0]) !== count) return;
          watching.disconnect();
          requestAnimationFrame(() => resolve(performance.now() - began));
        };
        const watching = new MutationObserver(look);
        watching.observe(status, { childList: true, characterData: true, subtree: true });
        field.value = wanted;
        field.dispatchEvent(new Event("input", { bubbles: true }));
      }),
    [text, rows],
  );
}

export async function tell(many = "5000") {
  const count = Number(many);
  const house = await House.open();
  await house.signsIn();
  const state = await house.context.storageState();
  const door = await repeatedly(ROUNDS, () => open(house, "", "form input:not(:disabled)"));
  // What the page is about is there, and not its frame alone.
  const overview = await repeatedly(ROUNDS, () => open(house, "", "main .welcome .button", state));

  await fleet(house, count);
  const { page } = house;
  await house.go("settings");
  await page.getByRole("heading", { level: 1 }).waitFor();
  const lists = await repeatedly(LIST_ROUNDS, async () => {
    const began = Date.now();
    await page.goto(`${house.url}/dashboard/vms`);
    await page.waitForFunction((all) => Number(document.querySelector(".tools [role=status]")?.textContent.split(" ")[0]) === all, count, { polling: "raf" });
    const shown = Date.now() - began;
    await page.waitForTimeout(1000);
    const frames = await scrolled(page, 240);
    await page.locator(".table .frame").evaluate((frame) => (frame.scrollTop = 0));
    const filters = [await filterFor(page, nameOf(count - 1), 1), await filterFor(page, "", count), await filterFor(page, "m-000", 100), await filterFor(page, "", count)];
    return { shown, frames, filters };
  });
  const version = house.browser.version();
  await house.close();
  console.log(JSON.stringify({ version, count, door, overview, lists }));
}
