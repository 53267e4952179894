// The network goes away under an open list, a hundred objects change, and it comes back. Then the same under uploads and the audit log,
// and other long work: downloads, clones, snapshots and copies.

import { audit } from "../audit.mjs";
import { downloads } from "../downloads.mjs";
import { GUEST, holds, House, MACHINES, median, PAGE, place, seenAfter, within } from "../house.mjs";
import { underWay } from "../under-way.mjs";
import { uploads } from "../uploads.mjs";
import { wire } from "../wire.mjs";

function machine(number) {
  const spec = { domain: { devices: {}, resources: { limits: { cpu: "1", memory: "64Mi" } } } };
  return { apiVersion: "kubevirt.io/v1", kind: "VirtualMachine", metadata: { name: `vm-${number}`, namespace: "default" }, spec: { runStrategy: "Halted", template: { spec } } };
}

export async function tell() {
  const line = await wire(place().url);
  const house = await House.open({ url: line.url });
  const { page } = house;
  await house.signsIn("vms");
  for (let number = 0; number < 60; number += 1) await house.api("POST", MACHINES, machine(number));
  const rows = () => page.locator("tbody tr[data-id]");
  const shown = async () => Number((await page.locator(".tools [role=status]").innerText()).split(" ")[0]);
  await within(PAGE, "sixty machines appear in an open list", async () => (await shown()) === 60 || (await shown()));
  await house.api("PATCH", `${MACHINES}/vm-0`, { metadata: { annotations: { seen: "now" } } }, "application/merge-patch+json");
  const took = [];
  for (const left of [59, 58, 57, 56, 55]) {
    const isLeft = (count) => document.querySelector(".tools [role=status]").textContent.startsWith(`${count} `);
    took.push(await seenAfter(page, () => house.api("DELETE", `${MACHINES}/vm-${left - 5}`), isLeft, left));
  }
  holds("what is deleted elsewhere goes from it within a second", median(took) < 1000, took);
  console.log(`after ${median(took)} ms at the median`);

  line.cut();
  await page.getByText("The connection is lost.").waitFor();
  console.log("a lost connection is told");
  for (let number = 0; number < 30; number += 1) await house.api("DELETE", `${MACHINES}/vm-${number}`);
  for (let number = 60; number < 110; number += 1) await house.api("POST", MACHINES, machine(number));
  for (let number = 30; number < 50; number += 1) {
    await house.api("PATCH", `${MACHINES}/vm-${number}`, { spec: { template: { spec: { domain: { cpu: { cores: 3, sockets: 1, threads: 1 } } } } } }, "application/merge-patch+json");
  }
  holds("meanwhile nothing of it is shown", (await shown()) === 55, await shown());
  line.mend();
  await page.getByText("The connection is lost.").waitFor({ state: "detached", timeout: GUEST });
  console.log("and comes back by itself");
  await within(PAGE, "the table holds what the API holds", async () => {
    const there = (await house.api("GET", MACHINES)).items.map((vm) => vm.metadata.name).sort();
    const seen = new Map();
    await page.locator(".table .frame").evaluate((frame) => (frame.scrollTop = 0));
    for (let step = 0; step < 20; step += 1) {
      for (const row of await rows().all()) {
        const cells = await row.locator("td").allInnerTexts();
        seen.set(cells[1].trim(), cells.map((cell) => cell.trim()));
      }
      const more = await page.locator(".table .frame").evaluate((frame) => {
        const at = frame.scrollTop;
        frame.scrollTop += frame.clientHeight;
        return frame.scrollTop > at;
      });
      if (!more) break;
      await page.waitForTimeout(60);
    }
    const names = [...seen.keys()].sort();
    if (JSON.stringify(names) !== JSON.stringify(there)) return { names: names.length, there: there.length };
    const cpus = (name) => seen.get(name)[4];
    return cpus("vm-40") === "3" && cpus("vm-55") === "1" ? true : [cpus("vm-40"), cpus("vm-55")];
  });
  await uploads(house, line);
  await downloads(house);
  await underWay(house, "vm-40", "vm-55");
  await audit(house, line);
  await house.close();
}
