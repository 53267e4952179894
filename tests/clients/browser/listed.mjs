// The list of machines: sorted, filtered, kept true without asking, and many machines at once.

import { GUEST, holds, MACHINES, median, PAGE, seenAfter, within } from "./house.mjs";

const CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims";
/** How long somebody looks at a list that asks for nothing. */
const IDLE = 5000;
const CREW = ["crew-1", "crew-2", "crew-3"];

/** The cells of a column, from top to bottom. */
const column = (page, head) =>
  page.locator("main table").evaluate((table, title) => {
    const at = [...table.tHead.rows[0].cells].findIndex((cell) => cell.innerText.startsWith(title));
    return [...table.tBodies[0].rows].map((row) => row.cells[at].innerText.trim());
  }, head);

/** `sorted-2`, `-3` and `-10` must be there, with as many processors each. */
export async function sortsAndFilters(house) {
  const { page } = house;
  const head = (name) => page.getByRole("columnheader", { name, exact: true }).getByRole("button");
  const reads = (promise, title, wanted) => within(PAGE, promise, async () => {
    const seen = (await column(page, title)).filter((cell) => wanted.includes(cell));
    return JSON.stringify(seen) === JSON.stringify(wanted) || seen;
  });
  const names = ["sorted-2", "sorted-3", "sorted-10"];
  const cpus = ["2", "3", "10"];
  await reads("a list is in the order of names, as people count", "Name", names);
  await head("Name").click();
  await reads("a click on the head turns it round", "Name", [...names].reverse());
  await head("CPUs").click();
  await reads("numbers are sorted as numbers", "CPUs", cpus);
  await head("CPUs").click();
  await reads("and the other way round by another click", "CPUs", [...cpus].reverse());
  holds("which those hear who cannot see it", (await page.getByRole("columnheader", { name: "CPUs" }).getAttribute("aria-sort")) === "descending");
  await page.reload();
  await reads("the address of the page keeps the order", "CPUs", [...cpus].reverse());
  const filter = page.getByRole("searchbox");
  await filter.fill("sorted-1");
  await within(PAGE, "a filter leaves what says its words", async () => JSON.stringify(await column(page, "Name")) === '["sorted-10"]');
  await filter.fill("sorted stopped");
  await within(PAGE, "also what says them in several columns", async () => (await column(page, "Name")).length === 3);
  await filter.fill("");
}

/** What a page asked the server for, from now on: requests, and what it says on its subscription. */
export function listensTo(page) {
  const asked = [];
  page.on("request", (request) => asked.push(`${request.method()} ${request.url()}`));
  page.on("websocket", (socket) => socket.on("framesent", ({ payload }) => asked.push(`${socket.url()} ${payload}`)));
  return asked;
}

export async function asksForNothing(house, asked) {
  const before = asked.length;
  await house.page.waitForTimeout(IDLE);
  const since = asked.slice(before);
  holds("a list that nobody touches asks the server for nothing", before > 0 && since.length === 0, since);
}

/** Changes of the processors of a machine that does not run, and how long each takes to be seen. */
export async function followsWithinASecond(house, name, where, look) {
  const took = [];
  for (const cores of [4, 5, 6, 7, 8]) {
    const change = () => house.api("PATCH", `${MACHINES}/${name}`, { spec: { template: { spec: { domain: { cpu: { cores } } } } } }, "application/merge-patch+json");
    took.push(await seenAfter(house.page, change, look, [name, String(cores)]));
  }
  holds(`what is changed elsewhere is seen on ${where} within a second`, median(took) < 1000, took);
  console.log(`after ${median(took)} ms at the median of ${JSON.stringify(took)}`);
}

export const inTheList = ([name, cores]) => {
  const row = document.querySelector(`tr[data-id="default/${name}"]`);
  const heads = [...(row?.closest("table").tHead.rows[0].cells ?? [])];
  return row?.cells[heads.findIndex((cell) => cell.innerText.startsWith("CPUs"))].innerText.trim() === cores;
};

/** The list must be open. */
export async function manyAtOnce(house) {
  const { page } = house;
  await page.getByRole("link", { name: "Create a virtual machine" }).first().click();
  await page.getByLabel("Name", { exact: true }).fill("crew");
  await page.getByLabel("CPUs", { exact: true }).fill("1");
  await page.getByLabel("Memory (GiB)").fill("0.125");
  await page.getByText("More options").click();
  await page.getByLabel("How many").fill("3");
  await page.getByLabel("When it should run").selectOption("Halted");
  const yaml = page.getByRole("textbox", { name: "YAML" });
  // They are stopped while they still boot, and hear no button then.
  await yaml.fill((await yaml.inputValue()).replace(/^( *)evictionStrategy: .*$/m, "$&\n$1terminationGracePeriodSeconds: 1"));
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await page.waitForURL(/vms\?q=crew/);
  const states = async () => JSON.stringify([await column(page, "Name"), await column(page, "State")]);
  const all = (promise, state) => within(GUEST, promise, async () => {
    const seen = await states();
    return seen === JSON.stringify([CREW, CREW.map(() => state)]) || seen;
  });
  await all("three machines are made at once, with numbers in their names", "Stopped");
  await page.getByLabel("Select all").check();
  holds("those that the filter left are selected", await page.getByText("3 selected").isVisible());
  const bar = (name) => page.locator(".tools").getByRole("button", { name, exact: true });
  holds("they can be started and not stopped", (await bar("Start").isEnabled()) && (await bar("Stop").isDisabled()));
  await bar("Start").click();
  await all("all are started by one click", "Running");
  await bar("Stop").click();
  await all("and stopped by another", "Stopped");
  await bar("Delete").click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("Delete 3 virtual machines?").waitFor();
  for (const box of await dialog.getByRole("checkbox").all()) await box.check();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await within(GUEST, "and deleted at once with their disks", async () => {
    const left = [...(await house.api("GET", MACHINES)).items, ...(await house.api("GET", CLAIMS)).items].map((one) => one.metadata.name).filter((name) => name.startsWith("crew"));
    return left.length === 0 || left;
  });
  await page.getByText("Nothing matches the filter.").waitFor();
}
