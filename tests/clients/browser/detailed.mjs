// The page of one machine: graphs, cards, YAML, what is wrong and what to do about it, refusals, and consoles that come back.

import { GUEST, holds, MACHINES, PAGE, within } from "./house.mjs";
import { followsWithinASecond } from "./listed.mjs";
import { answers, bootedAgain, connected } from "./screens.mjs";

const INSTANCES = MACHINES.replace("virtualmachines", "virtualmachineinstances");
const SUBRESOURCES = MACHINES.replace("kubevirt.io", "subresources.kubevirt.io");
const WEB = "/v1/kubevirt.io.virtualmachines/default/web";
/** What the server calls what people read. */
const TITLES = {
  start: "Start",
  stop: "Stop",
  forceStop: "Force stop",
  restart: "Restart",
  softreboot: "Reboot the guest",
  pause: "Pause",
  unpause: "Resume",
  snapshot: "Take a snapshot",
  restore: "Restore a snapshot",
  clone: "Clone",
  createTemplate: "Make a template",
  cpuAndMemoryHotplug: "Resize",
  addVolume: "Attach a disk",
  addNic: "Add a network card",
  ejectCdRom: "Eject a CD",
};

/** `web` must run and be open, and its serial console in a window; `sorted-3`, `greedy` and `broken` must be there. */
export async function onePage(house, serial) {
  await yaml(house);
  await live(house);
  await troubles(house);
  await graphs(house);
  await bootedAgain(serial);
  await house.page.bringToFront();
  await cards(house, serial);
  await consolesComeBack(house, serial);
  await refusals(house);
  await goes(house);
}

async function yaml(house) {
  const { page } = house;
  const described = async () => (await house.api("GET", `${MACHINES}/web`)).metadata.annotations["field.cattle.io/description"];
  await page.getByRole("button", { name: "YAML", exact: true }).click();
  const text = page.getByRole("textbox", { name: "YAML" });
  const write = async (words) => text.fill((await text.inputValue()).replace(/^( *)field.cattle.io\/description: .*\n/m, "").replace(/^( *)annotations:\n/m, `$&$1  field.cattle.io/description: ${words}\n`));
  await write("typed by hand");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Saved.").waitFor();
  holds("what is saved as YAML is what the API has", (await described()) === "typed by hand", await described());
  await write("typed late");
  await house.api("PATCH", `${MACHINES}/web`, { metadata: { annotations: { "field.cattle.io/description": "from elsewhere" } } }, "application/merge-patch+json");
  await page.getByText("It was changed meanwhile by somebody else.").waitFor();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("alert").getByText("the object has been modified").waitFor();
  holds("nobody writes over what somebody else changed meanwhile", (await described()) === "from elsewhere", await described());
  await page.getByRole("button", { name: "Show how it stands now" }).click();
  holds("and sees it when they want to", (await text.inputValue()).includes("from elsewhere"));
}

async function live(house) {
  await house.go("vms/default/sorted-3");
  await house.page.getByRole("heading", { name: "sorted-3" }).waitFor();
  const onThePage = ([name, cores]) => {
    const fact = [...document.querySelectorAll("dl div")].find((one) => one.querySelector("dt").innerText === "CPUs");
    return document.querySelector("h1").innerText.includes(name) && fact?.querySelector("dd").innerText === cores;
  };
  await followsWithinASecond(house, "sorted-3", "the page of a machine", onThePage);
}

async function troubles(house) {
  const { page } = house;
  for (const [name, why, advice, event] of [
    ["greedy", "Insufficient memory", "Give the machine less memory", "FailedScheduling"],
    ["broken", "PVC default/nowhere does not exist", "Create a volume of that name", "FailedPvcNotFound"],
  ]) {
    await house.go(`vms/default/${name}`);
    const condition = page.getByRole("row").filter({ hasText: why });
    await condition.waitFor();
    holds(`what is wrong with ${name} stands on its page, and what to do about it`, (await condition.innerText()).includes(advice), await condition.innerText());
    await page.getByRole("button", { name: "Events", exact: true }).click();
    await page.getByRole("row").filter({ hasText: event }).filter({ hasText: why }).first().waitFor();
    console.log("and among its events");
    await house.api("DELETE", `${MACHINES}/${name}`);
  }
}

async function graphs(house) {
  const { page } = house;
  await house.go("vms/default/web");
  const drawn = () => page.locator("figure").evaluateAll((figures) =>
    figures.map((figure) => ({
      title: figure.querySelector("h3").innerText,
      lines: [...figure.querySelectorAll("path")].map((path) => [...path.getAttribute("d").matchAll(/[ML][\d.]+ ([\d.]+)/g)].map((point) => point[1])),
    })),
  );
  const names = ["Processors", "Memory", "Disk", "Network"];
  await within(PAGE, "processors, memory, disk and network are drawn, and what the guest did is seen in each", async () => {
    const seen = await drawn();
    const quiet = names.filter((name) => !seen.find(({ title }) => title === name)?.lines.some((line) => new Set(line).size > 1));
    return quiet.length === 0 || [quiet, seen];
  });
  const points = async () => Math.max(...(await drawn()).map(({ lines }) => lines[0].length));
  const before = await points();
  await within(PAGE, "the graphs go on by themselves", async () => (await points()) > before || before);
}

async function cards(house, serial) {
  const { page } = house;
  await page.getByRole("button", { name: "Network", exact: true }).click();
  await page.getByRole("button", { name: "Add a network card" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Network").selectOption("default/lan");
  await dialog.getByRole("button", { name: "Add a network card" }).click();
  const row = page.getByRole("row").filter({ hasText: "nic-1" });
  const plugged = async () => (await house.api("GET", `${INSTANCES}/web`)).status.interfaces?.find((one) => one.name === "nic-1");
  await within(GUEST, "a network card is plugged in while it runs", async () => {
    const mac = (await plugged())?.mac;
    return (mac !== undefined && (await row.innerText()).includes(mac)) || [mac, await row.innerText()];
  });
  await answers(serial, "run echo $(ls /sys/class/net | grep -c eth)-cards", "2-cards", "the guest has two");
  await page.bringToFront();
  await row.getByRole("button", { name: "Remove" }).click();
  await row.waitFor({ state: "detached", timeout: GUEST });
  await within(GUEST, "it is taken out again", async () => (await plugged()) === undefined);
  await answers(serial, "run echo $(ls /sys/class/net | grep -c eth)-cards", "1-cards", "and the guest has one");
  await page.bringToFront();
}

async function consolesComeBack(house, serial) {
  const { page } = house;
  let [screens, lines] = [0, 0];
  page.on("websocket", (socket) => (screens += Number(socket.url().endsWith("/vnc"))));
  serial.on("websocket", (socket) => (lines += Number(socket.url().endsWith("/console"))));
  await page.getByRole("button", { name: "Console", exact: true }).click();
  await connected(page);
  await connected(serial);
  const before = [screens, lines];
  await answers(serial, "run touch /run/before; echo $((5*5))-before", "25-before");
  await page.bringToFront();
  const began = Date.now();
  const { uid } = (await house.api("GET", `${INSTANCES}/web`)).metadata;
  await house.api("PUT", `${SUBRESOURCES}/web/restart`, {});
  await within(GUEST, "a machine that is restarted elsewhere is another instance", async () => {
    const instance = await house.api("GET", `${INSTANCES}/web`);
    return instance !== undefined && instance.metadata.uid !== uid && instance.status.phase === "Running";
  });
  await within(GUEST, "its screen comes back by itself", async () => screens > before[0] && (await page.getByText("Connected", { exact: true }).count()) === 1);
  await within(GUEST, "and so does its serial console", async () => lines > before[1] && (await serial.getByText("Connected", { exact: true }).count()) === 1);
  console.log(`after ${((Date.now() - began) / 1000).toFixed(1)} s`);
  await answers(serial, "run echo $(ls /run | grep -c before)-old", "0-old", "which answers, in the new instance");
  await page.bringToFront();
  await within(GUEST, "and something is on the screen", () =>
    page.locator(".screen canvas").evaluate((one) => {
      const { data } = one.getContext("2d").getImageData(0, 0, one.width, one.height);
      return data.some((value, at) => at % 4 !== 3 && value > 90);
    }),
  );
  await serial.close();
}

async function refusals(house) {
  const { page } = house;
  await house.go("vms/default/web");
  const menu = page.getByRole("button", { name: "Actions of web" });
  await menu.click();
  const offered = Object.keys((await house.api("GET", WEB)).actions);
  const quick = await page.locator("main .page-head button, main header button").allInnerTexts();
  const shown = (await page.getByRole("menuitem").allInnerTexts()).map((one) => one.trim());
  const wanted = Object.entries(TITLES).flatMap(([action, title]) => (offered.includes(action) && !quick.includes(title) ? [title] : []));
  holds("what can be done with it is what the server offers, and nothing else", JSON.stringify(shown) === JSON.stringify([...wanted, "Delete"]) && shown.includes("Pause"), [shown, wanted]);
  holds("what it does not offer is not there", !offered.includes("start") && !shown.includes("Start") && !shown.includes("Resume"), shown);
  // Somebody else is faster.
  await house.api("PUT", `${SUBRESOURCES}/web/stop`, {});
  await within(GUEST, "it is stopped elsewhere while its menu is open", async () => (await page.getByText("Stopped", { exact: true }).count()) > 0);
  const [answer] = await Promise.all([page.waitForResponse((one) => one.url().endsWith("action=pause")), page.getByRole("menuitem", { name: "Pause" }).click()]);
  const told = await answer.text();
  const reason = told.startsWith("{") ? JSON.parse(told).message : told.trim();
  const toast = page.getByRole("alert").filter({ hasText: "Pause of web was refused" });
  await toast.waitFor();
  holds("what is refused is told in the server's words", answer.status() >= 400 && reason.length > 10 && (await toast.innerText()).includes(reason), [answer.status(), reason, await toast.innerText()]);
  console.log(reason);
}

/** One that is off is gone at once, perhaps before the answer is there. */
async function goes(house) {
  const { page } = house;
  await house.go("vms/default/sorted-3");
  await page.getByRole("button", { name: "Actions of sorted-3" }).click();
  await page.getByRole("menuitem", { name: "Delete" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.waitForURL(/\/dashboard\/vms$/);
  await page.getByRole("row").filter({ hasText: "sorted-2" }).waitFor();
  await page.getByRole("row").filter({ hasText: "sorted-3" }).waitFor({ state: "detached" });
  holds("whoever deletes a machine on its own page is in the list then", (await house.api("GET", `${MACHINES}/sorted-3`)) === undefined && (await page.getByRole("dialog").count()) === 0);
}
