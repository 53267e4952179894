// Pictures of every page: light, dark and as wide as a phone. For people to look at; nothing is judged here.

import { mkdirSync } from "node:fs";

import { GUEST, House, within } from "../house.mjs";

const PAGES = {
  overview: "",
  hosts: "hosts",
  host: "hosts/n1",
  machines: "vms",
  "machine-create": "vms/create",
  machine: "vms/default/web-1",
  "machine-disks": "vms/default/web-1/disks",
  "machine-nics": "vms/default/web-1/nics",
  "machine-snapshots": "vms/default/web-1/snapshots",
  "machine-events": "vms/default/web-1/events",
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
  support: "support",
};
const LOOKS = [
  ["light", 1280, 800],
  ["dark", 1280, 800],
  ["phone", 390, 844],
];
const MACHINES = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";

export async function tell(directory, disk) {
  mkdirSync(directory, { recursive: true });
  let house = await House.open();
  await house.page.goto(`${house.url}/dashboard/`);
  await house.page.screenshot({ path: `${directory}/sign-in.png` });
  await house.signsIn("images?add");
  process.env.SHEAF_PASSWORD_IS_CHOSEN = "1";
  await furnish(house, disk);
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

/** Something to see on every page. */
async function furnish(house, disk) {
  const { page } = house;
  await page.getByLabel("Upload a file").check();
  await page.setInputFiles("input[type=file]", disk);
  await page.getByRole("dialog").getByLabel("Name").fill("tiny-linux");
  await page.getByRole("dialog").getByRole("button", { name: "Add an image" }).click();
  await page.getByRole("row").filter({ hasText: "tiny-linux" }).getByText("Ready").waitFor({ timeout: GUEST });
  const image = (await house.api("GET", "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachineimages")).items[0];
  for (const [name, runStrategy] of [["web-1", "RerunOnFailure"], ["web-2", "RerunOnFailure"], ["db-1", "Halted"], ["build-7", "Halted"]]) {
    const claim = {
      metadata: { name: `${name}-disk-0`, annotations: { "harvesterhci.io/imageId": `default/${image.metadata.name}` } },
      spec: { accessModes: ["ReadWriteMany"], volumeMode: "Block", storageClassName: image.status.storageClassName, resources: { requests: { storage: "4Gi" } } },
    };
    await house.api("POST", MACHINES, {
      apiVersion: "kubevirt.io/v1",
      kind: "VirtualMachine",
      metadata: { name, namespace: "default", annotations: { "harvesterhci.io/volumeClaimTemplates": JSON.stringify([claim]) } },
      spec: {
        runStrategy,
        template: {
          spec: {
            domain: { cpu: { cores: 1 }, devices: { disks: [{ name: "disk-0", disk: { bus: "virtio" } }], interfaces: [{ name: "default", masquerade: {} }] }, resources: { limits: { cpu: "1", memory: "256Mi" } } },
            networks: [{ name: "default", pod: {} }],
            volumes: [{ name: "disk-0", persistentVolumeClaim: { claimName: `${name}-disk-0` } }],
          },
        },
      },
    });
  }
  await within(GUEST, "machines run", async () => (await house.api("GET", `${MACHINES}/web-1`)).status?.printableStatus === "Running");
  await house.api("POST", "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinebackups", {
    apiVersion: "harvesterhci.io/v1beta1",
    kind: "VirtualMachineBackup",
    metadata: { name: "web-1-before-upgrade", namespace: "default" },
    spec: { type: "snapshot", source: { apiGroup: "kubevirt.io", kind: "VirtualMachine", name: "web-1" } },
  });
  await page.waitForTimeout(45_000);
}
