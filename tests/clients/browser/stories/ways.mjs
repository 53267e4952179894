// Ways through the console: by keyboard, by a few letters, by links, and back.

import { holds, House, MACHINES, PAGE, within } from "../house.mjs";

const NAMES = ["alpha", "beta", "web-beta"];

export async function tell() {
  const house = await House.open();
  const { page } = house;
  for (const name of NAMES) {
    const spec = { domain: { devices: {}, memory: { guest: "64Mi" } } };
    await house.api("POST", MACHINES, { apiVersion: "kubevirt.io/v1", kind: "VirtualMachine", metadata: { name, namespace: "default" }, spec: { runStrategy: "Halted", template: { spec } } });
  }
  await links(house);
  await keyboard(house);
  await back(house);
  await palette(house);
  await house.close();
}

const isAt = (house, path) => within(PAGE, `that leads to ${path}`, async () => house.page.url() === `${house.url}/dashboard/${path}` || house.page.url());
const tabShown = (house, title) => house.page.locator('main nav button[aria-current="page"]', { hasText: title }).waitFor();
const focused = (page) => page.evaluate(() => (document.activeElement.getAttribute("aria-label") ?? document.activeElement.innerText).trim());
const names = (page) => page.locator("tbody tr[data-id]").evaluateAll((rows) => rows.map((row) => row.dataset.id.split("/")[1]));
const listed = (house, wanted) => within(PAGE, `the list has ${wanted.join(", ")}`, async () => JSON.stringify(await names(house.page)) === JSON.stringify(wanted) || (await names(house.page)));

async function links(house) {
  const { page } = house;
  await house.signsIn("vms/default/beta/events");
  await isAt(house, "vms/default/beta/events");
  await tabShown(house, "Events");
  console.log("a link to a tab opens it, after signing in and choosing a password, too");
  await house.go("vms/default/beta/yaml");
  await tabShown(house, "YAML");
  await within(PAGE, "and for who is signed in", async () => (await page.getByRole("textbox", { name: "YAML" }).inputValue()).includes("name: beta"));
  await house.go("vms?q=beta&sort=-name");
  await listed(house, ["web-beta", "beta"]);
  holds("a link to a list has its filter and its order", (await page.getByRole("searchbox").inputValue()) === "beta");
}

/** Presses a key until something of this name has the focus. */
async function reach(page, name, key = "Tab", most = 40) {
  for (let presses = 0; presses < most; presses += 1) {
    if ((await focused(page)) === name) return;
    await page.keyboard.press(key);
  }
  holds(`${key} reaches ${name}`, false, await focused(page));
}

async function keyboard(house) {
  const { page } = house;
  await house.go("vms");
  await listed(house, NAMES);
  await page.keyboard.press("/");
  holds("/ leads to the filter of a list, and is not typed there", (await page.evaluate(() => document.activeElement.matches("[data-filter]"))) && (await page.getByRole("searchbox").inputValue()) === "");
  await page.keyboard.type("beta/");
  holds("there it is a letter like any other", (await page.getByRole("searchbox").inputValue()) === "beta/");
  await page.keyboard.press("Backspace");
  await listed(house, ["beta", "web-beta"]);
  await reach(page, "beta");
  await page.keyboard.press("ArrowDown");
  holds("arrows go from row to row", (await focused(page)) === "web-beta", await focused(page));
  await page.keyboard.press("Enter");
  await isAt(house, "vms/default/web-beta");
  await page.getByRole("heading", { name: "web-beta" }).waitFor();
  await reach(page, "Events");
  await page.keyboard.press("Enter");
  await isAt(house, "vms/default/web-beta/events");
  console.log("a machine and its tabs are reached without a mouse");
  await house.go("vms");
  await listed(house, NAMES);
  await page.keyboard.press("/");
  await reach(page, "Actions of alpha");
  await page.keyboard.press("Enter");
  await page.getByRole("menu").waitFor();
  await within(PAGE, "a menu opens on its first choice", async () => (await focused(page)) === (await page.getByRole("menuitem").first().innerText()));
  await page.keyboard.press("ArrowUp");
  holds("arrows go round in it", (await focused(page)) === "Delete", await focused(page));
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog");
  await dialog.getByText("Delete alpha?").waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  holds("Escape leaves a dialog, and nothing has happened", (await house.api("GET", `${MACHINES}/alpha`)).metadata.deletionTimestamp === undefined);
}

async function back(house) {
  const { page } = house;
  await house.go("vms");
  await listed(house, NAMES);
  await page.getByRole("searchbox").fill("beta");
  await page.getByRole("columnheader", { name: "Name", exact: true }).getByRole("button").click();
  await listed(house, ["web-beta", "beta"]);
  await page.getByRole("link", { name: "beta", exact: true }).click();
  await isAt(house, "vms/default/beta");
  await page.getByRole("button", { name: "Disks", exact: true }).click();
  await isAt(house, "vms/default/beta/disks");
  await page.goBack();
  await isAt(house, "vms/default/beta");
  await tabShown(house, "Overview");
  await page.goBack();
  await isAt(house, "vms?q=beta&sort=-name");
  await listed(house, ["web-beta", "beta"]);
  holds("going back leads from the tab to the page to the list as it was left", (await page.getByRole("searchbox").inputValue()) === "beta");
  await page.goForward();
  await page.goForward();
  await isAt(house, "vms/default/beta/disks");
  await tabShown(house, "Disks");
}

async function palette(house) {
  const { page } = house;
  const dialog = page.getByRole("dialog", { name: "Go to or do" });
  const field = dialog.getByRole("combobox");
  const open = async () => {
    await page.keyboard.press("Control+k");
    await within(PAGE, "Ctrl K opens the palette", () => field.evaluate((one) => one === document.activeElement));
  };
  const chosen = () => dialog.locator('[role=option][aria-selected="true"]').innerText();
  await open();
  await page.keyboard.type("wbta");
  await within(PAGE, "a few letters find a machine", async () => (await chosen()).includes("web-beta"));
  await page.keyboard.press("Enter");
  await isAt(house, "vms/default/web-beta");
  await dialog.waitFor({ state: "detached" });
  await open();
  await page.keyboard.type("imag");
  await within(PAGE, "and a page", async () => (await chosen()).trim() === "Images");
  await page.keyboard.press("Enter");
  await isAt(house, "images");
  await page.getByRole("heading", { name: "Images" }).waitFor();
  await page.keyboard.press("/");
  await open();
  await page.keyboard.type("s");
  const options = (await dialog.getByRole("option").allInnerTexts()).map((one) => one.trim());
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowUp");
  await within(PAGE, "arrows choose another", async () => (await chosen()).trim() === options[1] || [await chosen(), options]);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: options[1], level: 1 }).waitFor();
  const there = page.url();
  holds("from any field, and Enter goes there", there !== `${house.url}/dashboard/images`, there);
  await open();
  await page.keyboard.type("alpha");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  holds("Escape closes it, and nobody has gone anywhere", page.url() === there);
}
