// Pictures of every page, and of everything that opens over one: light, dark and as wide as a phone. For people to look at; nothing is
// judged here.

import { mkdirSync } from "node:fs";

import { furnish } from "../furnish.mjs";
import { House, place } from "../house.mjs";
import { OVERLAYS } from "../overlays.mjs";
import { wire } from "../wire.mjs";

const unfold = async (page) => {
  await page.getByText("More options").click();
  await page.getByLabel("Description").scrollIntoViewIfNeeded();
};
const withTheMenuOpen = async (page) => {
  const menu = page.getByRole("button", { name: "Menu" });
  if (await menu.isVisible()) await menu.click();
};

/** Where it is, and what is done there before the picture is taken. */
const PAGES = {
  overview: [""],
  hosts: ["hosts"],
  host: ["hosts/n1"],
  "host-machines": ["hosts/n1/machines"],
  volume: ["volumes/default/web-1-disk-0"],
  template: ["templates/default/small"],
  user: ["users/admin"],
  machines: ["vms"],
  "machines-none-found": ["vms?q=nothing-like-it"],
  "machine-create": ["vms/create"],
  "machine-create-unfolded": ["vms/create", unfold],
  machine: ["vms/default/web-1"],
  "machine-stopped": ["vms/default/db-1"],
  "machine-disks": ["vms/default/web-1/disks"],
  "machine-nics": ["vms/default/web-1/nics"],
  "machine-snapshots": ["vms/default/web-1/snapshots"],
  "machine-events": ["vms/default/web-1/events"],
  "machine-audit": ["vms/default/web-1/audit"],
  "machine-yaml": ["vms/default/web-1/yaml"],
  "machine-console": ["vms/default/web-1/console"],
  "machine-console-stopped": ["vms/default/db-1/console"],
  volumes: ["volumes"],
  images: ["images"],
  snapshots: ["snapshots"],
  "snapshots-of-volumes": ["snapshots/volumes"],
  networks: ["networks"],
  "networks-cluster": ["networks/cluster"],
  "networks-pools": ["networks/pools"],
  "networks-leases": ["networks/leases"],
  keys: ["keys"],
  templates: ["templates"],
  "cloud-configs": ["cloud-configs"],
  settings: ["settings"],
  users: ["users"],
  access: ["access"],
  events: ["events"],
  audit: ["audit?verb=all"],
  support: ["support"],
  nowhere: ["no/such/page"],
  navigation: ["", withTheMenuOpen],
};
const LOOKS = [
  ["light", 1280, 800],
  ["dark", 1280, 800],
  ["phone", 390, 844],
];
/** So that there is something on the graphs. */
const WHILE = 45_000;

export async function tell(directory, disk) {
  mkdirSync(directory, { recursive: true });
  const house = await House.open();
  await beforeAnything(house, directory);
  await house.go("images");
  await furnish(house, disk);
  await house.page.waitForTimeout(WHILE);
  await pages(house, directory);
  await overlays(house, directory);
  await house.browser.close();
  await withoutAConnection(directory);
}

/** What somebody sees who has just started it. */
async function beforeAnything(house, directory) {
  await house.go();
  await inEveryLook(house, directory, "sign-in");
  await house.types("admin", "not the password");
  await house.page.getByRole("alert").waitFor();
  await inEveryLook(house, directory, "sign-in-refused");
  await house.types("admin", process.env.SHEAF_FIRST_PASSWORD);
  await house.page.waitForURL(/password/);
  await inEveryLook(house, directory, "password");
  await house.choosesPassword();
  process.env.SHEAF_PASSWORD_IS_CHOSEN = "1";
  for (const [name, [path, act]] of Object.entries(PAGES)) {
    // What belongs to one machine is not there yet.
    if (act || path.split("/").length > 2 || path.includes("?q")) continue;
    await leadTo(house, path);
    await inEveryLook(house, directory, `empty-${name}`);
  }
  await leadTo(house, "");
  await house.page.getByRole("button", { name: "Add a node" }).click();
  await inEveryLook(house, directory, "over-adding-a-node");
}

export async function pages(house, directory, wanted = Object.keys(PAGES)) {
  for (const name of wanted) {
    const [path, act] = PAGES[name];
    // A page arranges itself as wide as it is when it opens. What is done on it is not undone: then each look begins anew.
    for (const look of act ? LOOKS.map((one) => [one]) : [LOOKS.slice(0, 2), LOOKS.slice(2)]) {
      await resize(house, look[0]);
      await leadTo(house, path);
      if (act) await act(house.page);
      await house.page.waitForTimeout(name === "machine-console" ? 4000 : 600);
      await inEveryLook(house, directory, name, look);
    }
  }
  console.log(`${wanted.length} pages`);
}

export async function overlays(house, directory, wanted = OVERLAYS) {
  for (const [path, open, name] of wanted) {
    await resize(house, LOOKS[0]);
    await leadTo(house, path);
    await open(house.page);
    await house.page.waitForTimeout(300);
    await inEveryLook(house, directory, `over-${name.replaceAll(" ", "-")}`);
  }
  console.log(`${wanted.length} dialogs and menus`);
}

export async function withoutAConnection(directory) {
  const line = await wire(place().url);
  const house = await House.open({ url: line.url });
  await house.signsIn("vms");
  await house.page.getByRole("row").nth(1).waitFor();
  line.cut();
  await house.page.getByText("The connection is lost.").waitFor();
  await inEveryLook(house, directory, "connection-lost");
  await house.browser.close();
}

async function leadTo(house, path) {
  await house.go(path);
  await house.page.getByRole("heading", { level: 1 }).first().waitFor();
  await house.page.waitForFunction(() => document.querySelector("main [role=status]")?.textContent !== "Loading…");
}

async function resize(house, [look, width, height]) {
  await house.page.emulateMedia({ colorScheme: look === "dark" ? "dark" : "light" });
  await house.page.setViewportSize({ width, height });
}

async function inEveryLook(house, directory, name, looks = LOOKS) {
  for (const look of looks) {
    await resize(house, look);
    // Colours and places take a moment to be the new ones.
    await house.page.waitForTimeout(150);
    await house.page.screenshot({ path: `${directory}/${name}-${look[0]}.png` });
  }
  await resize(house, LOOKS[0]);
}
