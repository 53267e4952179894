// The pages of machines, in daily use: the list, many at once, and everything on the page of one, with its consoles.

import { onePage } from "../detailed.mjs";
import { addImage, lan, machine } from "../furnish.mjs";
import { holds, House, MACHINES, PAGE } from "../house.mjs";
import { asksForNothing, followsWithinASecond, inTheList, listensTo, manyAtOnce, sortsAndFilters } from "../listed.mjs";
import { screens } from "../screens.mjs";

/** A machine that has nothing, or this. */
const bare = (name, cores, runStrategy = "Halted", memory = "64Mi", more = {}) => ({
  apiVersion: "kubevirt.io/v1",
  kind: "VirtualMachine",
  metadata: { name, namespace: "default" },
  spec: { runStrategy, template: { spec: { domain: { cpu: { cores }, devices: {}, memory: { guest: memory } }, ...more } } },
});

export async function tell(disk) {
  const house = await House.open();
  const { page } = house;
  const asked = listensTo(page);
  await house.signsIn("images");
  const image = await addImage(house, disk);
  const web = machine(image, "web", "RerunOnFailure");
  // It is stopped when nobody needs it any more, and need not be asked twice.
  web.spec.template.spec.terminationGracePeriodSeconds = 1;
  await house.api("POST", MACHINES, web);
  for (const cores of [2, 3, 10]) await house.api("POST", MACHINES, bare(`sorted-${cores}`, cores));
  await lan(house);

  asked.length = 0;
  await house.go("vms");
  await page.getByRole("row").filter({ hasText: "sorted-10" }).waitFor({ timeout: PAGE });
  await page.waitForLoadState("networkidle");
  const later = /MachinePage|SerialConsole|VncScreen/;
  holds("a list loads neither graphs nor consoles", asked.some((one) => /MachineList/.test(one)) && !asked.some((one) => later.test(one)), asked);
  await sortsAndFilters(house);
  await manyAtOnce(house);
  await house.go("vms");
  await page.getByRole("row").filter({ hasText: "sorted-10" }).waitFor();
  await page.waitForLoadState("networkidle");
  await asksForNothing(house, asked);
  await followsWithinASecond(house, "sorted-2", "the list", inTheList);

  await house.api("POST", MACHINES, bare("greedy", 1, "RerunOnFailure", "900Gi"));
  await house.api("POST", MACHINES, bare("broken", 1, "RerunOnFailure", "64Mi", { domain: { devices: { disks: [{ name: "root", disk: {} }] }, memory: { guest: "64Mi" } }, volumes: [{ name: "root", persistentVolumeClaim: { claimName: "nowhere" } }] }));
  const serial = await screens(house, asked);
  await onePage(house, serial);
  await house.close();
}
