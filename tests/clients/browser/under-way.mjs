// What takes its time beside transfers: clones of machines, snapshots of machines and volumes, copies of volumes. What fails says why;
// what is under way is seen, and can be cancelled with what it made and nothing else.

import { holds, PAGE, within } from "./house.mjs";

const MACHINES = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const CLONES = "/apis/clone.kubevirt.io/v1beta1/namespaces/default/virtualmachineclones";
const SNAPSHOTS = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinebackups";
const VOLUME_SNAPSHOTS = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";
const CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims";

const machine = (name) => ({ apiGroup: "kubevirt.io", kind: "VirtualMachine", name });
const clone = (name, source, target) => ({ apiVersion: "clone.kubevirt.io/v1beta1", kind: "VirtualMachineClone", metadata: { name, namespace: "default" }, spec: { source: machine(source), target: machine(target) } });

/** Never there, since nobody knows its class. */
const unmade = (name, more = {}) => ({ metadata: { name }, spec: { accessModes: ["ReadWriteMany"], volumeMode: "Block", storageClassName: "nobody-knows", resources: { requests: { storage: "1Gi" } }, ...more } });
const claim = (name, more) => ({ apiVersion: "v1", kind: "PersistentVolumeClaim", ...unmade(name, more) });

/** One whose disk is never there, and so is no copy and no snapshot of it. */
function stuck() {
  const domain = { devices: { disks: [{ name: "root", disk: { bus: "virtio" } }] }, resources: { limits: { cpu: "1", memory: "64Mi" } } };
  return {
    apiVersion: "kubevirt.io/v1",
    kind: "VirtualMachine",
    metadata: { name: "stuck", namespace: "default", annotations: { "harvesterhci.io/volumeClaimTemplates": JSON.stringify([unmade("stuck-root")]) } },
    spec: { runStrategy: "Halted", template: { spec: { domain, volumes: [{ name: "root", persistentVolumeClaim: { claimName: "stuck-root" } }] } } },
  };
}

/** The two machines must be there, off and without disks. */
export async function underWay(house, source, taken) {
  const named = async (path) => (await house.api("GET", path)).items.map((one) => one.metadata.name);
  await clones(house, named, source, taken);
  await snapshots(house, named);
  await copies(house, named);
}

async function clones(house, named, source, taken) {
  const { page } = house;
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
  await lend(house, "lent", "stuck-copy");
  await section.getByRole("button", { name: "Cancel: stuck-copy from stuck" }).click();
  await section.waitFor({ state: "detached" });
  await page.getByText("The clone stuck-copy is cancelled.").waitFor();
  await within(PAGE, "it can be cancelled: the machine that it made goes with its disk, and nothing else does", async () => {
    const [all, machines, disks] = await Promise.all([CLONES, MACHINES, CLAIMS].map(named));
    const isGone = !all.includes("waits") && !machines.includes("stuck-copy") && !disks.some((name) => name.startsWith("stuck-copy"));
    return (isGone && machines.includes("stuck") && disks.includes("stuck-root")) || [all, disks];
  });
  const { metadata } = await house.api("GET", `${CLAIMS}/lent`);
  holds("also not a volume that somebody attached to it meanwhile", metadata.deletionTimestamp === undefined, metadata);
}

/** A volume that is nobody's is attached to a machine, as by somebody who found it in the list. */
async function lend(house, name, to) {
  await house.api("POST", CLAIMS, claim(name));
  const { spec } = (await house.api("GET", `${MACHINES}/${to}`)).spec.template;
  const volumes = [...spec.volumes, { name, persistentVolumeClaim: { claimName: name } }];
  const disks = [...spec.domain.devices.disks, { name, disk: { bus: "virtio" } }];
  await house.api("PATCH", `${MACHINES}/${to}`, { spec: { template: { spec: { volumes, domain: { devices: { disks } } } } } }, "application/merge-patch+json");
}

/** Of the machine that waits for its disk, and of that disk. */
async function snapshots(house, named) {
  const { page } = house;
  const of = { apiGroup: "kubevirt.io", kind: "VirtualMachine", name: "stuck" };
  await house.api("POST", SNAPSHOTS, { apiVersion: "harvesterhci.io/v1beta1", kind: "VirtualMachineBackup", metadata: { name: "of-stuck" }, spec: { type: "snapshot", source: of } });
  await house.api("POST", VOLUME_SNAPSHOTS, { apiVersion: "snapshot.storage.k8s.io/v1", kind: "VolumeSnapshot", metadata: { name: "of-its-disk" }, spec: { source: { persistentVolumeClaimName: "stuck-root" } } });
  await page.getByRole("link", { name: "Snapshots" }).first().click();
  const row = await seenUnderWay(page, "of-stuck");
  holds("a snapshot of a machine that is being taken is seen, and its size is not told yet", (await row.locator("td").allInnerTexts()).includes("–"), await row.locator("td").allInnerTexts());
  await isCancelled(page, "of-stuck", "The snapshot of-stuck is cancelled.");
  await within(PAGE, "it can be cancelled, and what it began goes with it", async () => {
    const left = [await named(SNAPSHOTS), await named(VOLUME_SNAPSHOTS)];
    return (left[0].length === 0 && left[1].every((name) => name === "of-its-disk")) || left;
  });
  await page.getByRole("button", { name: "Of volumes" }).click();
  await seenUnderWay(page, "of-its-disk");
  await isCancelled(page, "of-its-disk", "The snapshot of-its-disk is cancelled.");
  await within(PAGE, "so can one of a volume", async () => (await named(VOLUME_SNAPSHOTS)).length === 0);
}

async function copies(house, named) {
  const { page } = house;
  await house.api("POST", CLAIMS, claim("second-root", { dataSource: { kind: "PersistentVolumeClaim", name: "stuck-root" } }));
  await page.getByRole("link", { name: "Volumes" }).first().click();
  await seenUnderWay(page, "second-root");
  const state = page.getByRole("row").filter({ hasText: "stuck-root" }).getByText("Being made");
  holds("what a volume waits for is said whole", await state.evaluate((one) => one.scrollWidth <= one.clientWidth));
  await isCancelled(page, "second-root", "The volume second-root is cancelled.");
  await within(PAGE, "a copy of a volume can be cancelled, and the volume stays", async () => {
    const left = await named(CLAIMS);
    return (!left.includes("second-root") && left.includes("stuck-root")) || left;
  });
}

async function seenUnderWay(page, name) {
  const row = page.getByRole("row").filter({ hasText: name });
  await row.getByRole("progressbar", { name }).waitFor();
  return row;
}

async function isCancelled(page, name, said) {
  await page.getByRole("button", { name: `Cancel: ${name}` }).click();
  await page.getByRole("row").filter({ hasText: name }).waitFor({ state: "detached" });
  await page.getByText(said).waitFor();
}
