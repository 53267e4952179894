// Every page, empty and furnished, its dialogs and menus: what people who cannot see or point find there, by axe's rules, in light and
// in dark and on a phone.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

import { furnish } from "../furnish.mjs";
import { holds, House } from "../house.mjs";
import { OVERLAYS } from "../overlays.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const wanted = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"];
const contrast = { "color-contrast": { enabled: false } };
/** Of the rules only those are asked again that what changes can break: colours in the dark, all else where things are arranged anew. */
const LOOKS = [
  { scheme: "light", width: 1280, asked: { runOnly: wanted } },
  { scheme: "dark", width: 1280, asked: { runOnly: ["color-contrast"] } },
  { scheme: "light", width: 390, asked: { runOnly: wanted, rules: contrast } },
];

/** Pages of one thing, and what opens over pages: where it is, and what is done there. */
const FURNISHED = [
  ["vms/default/web-1"],
  ["vms/default/web-1/console"],
  ["vms/default/web-1/disks"],
  ["vms/default/web-1/nics"],
  ["vms/default/web-1/snapshots"],
  ["vms/default/web-1/events"],
  ["vms/default/web-1/audit"],
  ["vms/default/web-1/yaml"],
  ["volumes/default/web-1-disk-0"],
  ["hosts/n1"],
  ["hosts/n1/machines"],
  ["users/admin"],
  ["templates/default/small"],
  ...OVERLAYS,
];

export async function tell(disk, ...pages) {
  const house = await House.open();
  await leadTo(house, "sign-in");
  await judge(house, "sign-in");
  await house.signsIn();
  for (const page of pages) {
    await leadTo(house, page);
    await judge(house, `${page || "overview"}, empty,`, LOOKS.slice(0, 1));
  }
  if (disk !== "") {
    await leadTo(house, "images");
    await furnish(house, disk, { machines: 2 });
    for (const page of pages) {
      await leadTo(house, page);
      await judge(house, page || "overview");
    }
    for (const [page, open, name] of FURNISHED) {
      await leadTo(house, page);
      if (open) await open(house.page);
      await judge(house, name ?? page);
    }
  }
  await house.close();
}

/** By the page's own ways, which takes a fraction of loading it anew. */
async function leadTo(house, path) {
  const { page } = house;
  const there = `/dashboard/${path}`;
  // Whatever is open goes with the page it was opened on.
  if ((await page.locator("dialog[open], [role=menu]").count()) > 0 || !(await page.evaluate(() => "axe" in globalThis))) await page.goto(`${house.url}${there}`);
  else await page.evaluate((to) => (history.pushState({}, "", to), void dispatchEvent(new PopStateEvent("popstate", { state: {} }))), there);
  await page.waitForFunction((to) => location.pathname + location.search === to, there);
  await page.getByRole("heading", { level: 1 }).first().waitFor();
  await page.waitForFunction(() => document.querySelector("main [role=status]")?.textContent !== "Loading…");
  // Put in past the policy of the page, which would forbid it: the judge is not part of what is judged.
  const session = await page.context().newCDPSession(page);
  await session.send("Runtime.evaluate", { expression: axe });
  await session.detach();
}

async function judge(house, name, looks = LOOKS) {
  const { page } = house;
  for (const { scheme, width, asked } of looks) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.setViewportSize({ width, height: 800 });
    // Colours and places take a moment to be the new ones.
    await page.waitForTimeout(120);
    if (process.env.SHEAF_SHOTS) await page.screenshot({ path: `${process.env.SHEAF_SHOTS}/${name.replace(/\W+/g, "-")}-${scheme}-${width}.png` });
    const found = await page.evaluate((options) => globalThis.axe.run(document, options), asked);
    const wrong = found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.target.join(" ")).slice(0, 4).join(", ")}`);
    complain(`${name} is accessible, ${scheme}, ${width} wide`, wrong);
    const beyond = await page.evaluate(() => {
      const main = document.querySelector("main");
      const dialog = document.querySelector("dialog[open]");
      const beyond = [document.documentElement, main, dialog].filter((one) => one !== null && one.scrollWidth > Math.min(one.clientWidth, innerWidth) + 1);
      return beyond.map((one) => `${one.localName}: ${one.scrollWidth} of ${one.clientWidth}`);
    });
    complain(`and nothing of ${name} lies beyond the edge, ${width} wide`, beyond);
  }
  const [{ scheme, width }] = LOOKS;
  await page.emulateMedia({ colorScheme: scheme });
  await page.setViewportSize({ width, height: 800 });
}

function complain(promise, wrong) {
  if (process.env.SHEAF_ALL_COMPLAINTS) {
    if (wrong.length > 0) console.log(`NOT SO: ${promise}: ${JSON.stringify(wrong)}`);
    return;
  }
  holds(promise, wrong.length === 0, wrong);
}
