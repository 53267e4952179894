// Something to see on every page: an image, machines that run and that do not, and one of each other thing.

import { GUEST, MACHINES, within } from "./house.mjs";

const HARVESTER = "/apis/harvesterhci.io/v1beta1/namespaces/default";
const KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJvmSsBhbTZ2xhRBNGmUx9nkJmU0Pj3yGkyqLZbVd8x4 jo@desk";

/** The page of images must be open, with nothing in it. */
export async function addImage(house, disk) {
  const { page } = house;
  await page.getByRole("button", { name: "Add an image" }).first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Upload a file").check();
  await dialog.locator("input[type=file]").setInputFiles(disk);
  await dialog.getByLabel("Name").fill("tiny-linux");
  await dialog.getByRole("button", { name: "Add an image" }).click();
  await page.getByRole("row").filter({ hasText: "tiny-linux" }).getByText("Ready").waitFor({ timeout: GUEST });
  return (await house.api("GET", `${HARVESTER}/virtualmachineimages`)).items[0];
}

/** A network that cards can be plugged into. */
export function lan(house) {
  return house.api("POST", "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions", {
    apiVersion: "k8s.cni.cncf.io/v1",
    kind: "NetworkAttachmentDefinition",
    metadata: { name: "lan", labels: { "network.harvesterhci.io/clusternetwork": "mgmt", "network.harvesterhci.io/type": "UntaggedNetwork" } },
    spec: { config: JSON.stringify({ cniVersion: "0.3.1", name: "lan", type: "bridge", bridge: "mgmt-br", promiscMode: true, ipam: {} }) },
  });
}

/** The page of images must be open, with nothing in it. */
export async function furnish(house, disk, { machines = 4 } = {}) {
  const image = await addImage(house, disk);
  const wanted = [["web-1", "RerunOnFailure"], ["db-1", "Halted"], ["web-2", "RerunOnFailure"], ["build-7", "Halted"]];
  for (const [name, runStrategy] of wanted.slice(0, machines)) await house.api("POST", MACHINES, machine(image, name, runStrategy));
  await within(GUEST, "a machine runs", async () => (await house.api("GET", `${MACHINES}/web-1`)).status?.printableStatus === "Running");
  const made = (kind, name, spec, more = {}) => ({ apiVersion: "harvesterhci.io/v1beta1", kind, metadata: { name, namespace: "default", ...more }, spec });
  await house.api("POST", `${HARVESTER}/virtualmachinebackups`, made("VirtualMachineBackup", "web-1-before-upgrade", { type: "snapshot", source: { apiGroup: "kubevirt.io", kind: "VirtualMachine", name: "web-1" } }));
  await house.api("POST", `${HARVESTER}/keypairs`, made("KeyPair", "jo", { publicKey: KEY }));
  await house.api("POST", `${HARVESTER}/virtualmachinetemplates`, made("VirtualMachineTemplate", "small", { description: "One processor, for trying things out" }));
  const { spec } = machine(image, "small", "Halted");
  await house.api("POST", `${HARVESTER}/virtualmachinetemplateversions`, made("VirtualMachineTemplateVersion", "small-1", { templateId: "default/small", vm: { metadata: {}, spec } }));
  await house.api("POST", "/api/v1/namespaces/default/configmaps", {
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: { name: "with-agent", labels: { "harvesterhci.io/cloud-init-template": "user" } },
    data: { cloudInit: "#cloud-config\npackages: [qemu-guest-agent]\n" },
  });
  await lan(house);
  await house.api("POST", "/v3/users", { username: "jo", name: "Jo Miller", password: "somebody-ordinary-1234", enabled: true, mustChangePassword: true });
}

export function machine(image, name, runStrategy) {
  const claim = {
    metadata: { name: `${name}-disk-0`, annotations: { "harvesterhci.io/imageId": `default/${image.metadata.name}` } },
    spec: { accessModes: ["ReadWriteMany"], volumeMode: "Block", storageClassName: image.status.storageClassName, resources: { requests: { storage: "4Gi" } } },
  };
  return {
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
  };
}
