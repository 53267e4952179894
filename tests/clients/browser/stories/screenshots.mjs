// Pictures of every page: light, dark and as wide as a phone. For people to look at; nothing is judged here.

import { mkdirSync } from "node:fs";

import { furnish } from "../furnish.mjs";
import { House } from "../house.mjs";

const PAGES = {
  overview: "",
  hosts: "hosts",
  host: "hosts/n1",
  volume: "volumes/default/web-1-disk-0",
  template: "templates/default/small",
  user: "users/admin",
  machines: "vms",
  "machine-create": "vms/create",
  machine: "vms/default/web-1",
  "machine-disks": "vms/default/web-1/disks",
  "machine-nics": "vms/default/web-1/nics",
  "machine-snapshots": "vms/default/web-1/snapshots",
  "machine-events": "vms/default/web-1/events",
  "machine-audit": "vms/default/web-1/audit",
  "machine-yaml": "vms/default/web-1/yaml",
  "machine-console": "vms/default/web-1/console",
  volumes: "volumes",
  images: "images",
  snapshots: "snapshots",
  networks: "networks",
  keys: "keys",
  templates: "templates",
  "cloud-configs": "cloud-configs",
  settings: "settings",
  users: "users",
  access: "access",
  events: "events",
  audit: "audit?verb=all",
  support: "support",
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
  let house = await House.open();
  await house.page.goto(`${house.url}/dashboard/`);
  await house.page.screenshot({ path: `${directory}/sign-in.png` });
  await house.signsIn("images");
  process.env.SHEAF_PASSWORD_IS_CHOSEN = "1";
  await furnish(house, disk);
  await house.page.waitForTimeout(WHILE);
  for (const [look, width, height] of LOOKS) {
    await house.browser.close();
    house = await House.open({ scheme: look === "dark" ? "dark" : "light", width, height });
    await house.signsIn();
    for (const [name, path] of Object.entries(PAGES)) {
      await house.go(path);
      await house.page.getByRole("heading", { level: 1 }).first().waitFor();
      await house.page.waitForTimeout(name === "machine-console" ? 4000 : 900);
      await house.page.screenshot({ path: `${directory}/${name}-${look}.png` });
    }
    console.log(`${Object.keys(PAGES).length} pages, ${look}`);
  }
  await house.browser.close();
}
