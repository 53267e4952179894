// Clones of machines: those that fail say why, and those that are under way can be cancelled with what they made.

import { holds, PAGE, within } from "./house.mjs";

const MACHINES = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const CLONES = "/apis/clone.kubevirt.io/v1beta1/namespaces/default/virtualmachineclones";
const CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims";

const machine = (name) => ({ apiGroup: "kubevirt.io", kind: "VirtualMachine", name });
const clone = (name, source, target) => ({ apiVersion: "clone.kubevirt.io/v1beta1", kind: "VirtualMachineClone", metadata: { name, namespace: "default" }, spec: { source: machine(source), target: machine(target) } });

/** One whose disk is never there, since nobody knows its class, and so is no copy of it. */
function stuck() {
  const claim = { metadata: { name: "stuck-root" }, spec: { accessModes: ["ReadWriteMany"], volumeMode: "Block", storageClassName: "nobody-knows", resources: { requests: { storage: "1Gi" } } } };
  const domain = { devices: { disks: [{ name: "root", disk: { bus: "virtio" } }] }, resources: { limits: { cpu: "1", memory: "64Mi" } } };
  return {
    apiVersion: "kubevirt.io/v1",
    kind: "VirtualMachine",
    metadata: { name: "stuck", namespace: "default", annotations: { "harvesterhci.io/volumeClaimTemplates": JSON.stringify([claim]) } },
    spec: { runStrategy: "Halted", template: { spec: { domain, volumes: [{ name: "root", persistentVolumeClaim: { claimName: "stuck-root" } }] } } },
  };
}

/** The two machines must be there, off and without disks. */
export async function clones(house, source, taken) {
  const { page } = house;
  const named = async (path) => (await house.api("GET", path)).items.map((one) => one.metadata.name);
  await house.api("POST", CLONES, clone("fails", source, taken));
  await page.getByRole("link", { name: "Virtual machines" }).first().click();
  const section = page.locator("section").filter({ has: page.getByRole("heading", { name: "Clones" }) });
  await section.getByText(`the virtual machine ${taken} exists already`).waitFor();
  console.log("a clone that failed says why");
  await page.goto(`${house.url}/dashboard/vms/default/${source}`);
  await section.getByText(`${taken} from ${source}`).waitFor();
  console.log("also on the page of the machine");
  await section.getByRole("button", { name: `Put away: ${taken} from ${source}` }).click();
  await section.waitFor({ state: "detached" });
  holds("it can be put away, and the machine of that name stays", !(await named(CLONES)).includes("fails") && (await named(MACHINES)).includes(taken));

  await house.api("POST", MACHINES, stuck());
  await within(PAGE, "a machine waits for its disk", async () => (await named(CLAIMS)).includes("stuck-root"));
  await house.api("POST", CLONES, clone("waits", "stuck", "stuck-copy"));
  await page.getByRole("link", { name: "Virtual machines" }).first().click();
  await section.getByRole("progressbar", { name: "stuck-copy from stuck" }).waitFor();
  await section.getByText("waiting for the claim").waitFor();
  console.log("one that is under way says what it waits for");
  const claims = (await named(CLAIMS)).filter((name) => name.startsWith("stuck-copy"));
  holds("its machine has a disk of its own", claims.length === 1, claims);
  await section.getByRole("button", { name: "Cancel: stuck-copy from stuck" }).click();
  await section.waitFor({ state: "detached" });
  await page.getByText("The clone stuck-copy is cancelled.").waitFor();
  await within(PAGE, "it can be cancelled: the machine that it made goes with its disk, and nothing else does", async () => {
    const [all, machines, disks] = await Promise.all([CLONES, MACHINES, CLAIMS].map(named));
    const isGone = !all.includes("waits") && !machines.includes("stuck-copy") && !disks.some((name) => name.startsWith("stuck-copy"));
    return (isGone && machines.includes("stuck") && disks.includes("stuck-root")) || [all, disks];
  });
}
