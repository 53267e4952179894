// A machine before it is made. The object is the truth; what the form shows is read from it and written into it, so that whatever
// somebody adds in the YAML beside the form stays, and the form follows.

import { parseDocument, stringify } from "yaml";

import { CLAIMS, DESCRIPTION, type CloudInit, type Disk, type MachineSpec, SSH_NAMES } from "@/kinds/virtual-machine";
import { quantity } from "@/parts/quantity";
import { words } from "@/words";

export interface Draft {
  apiVersion: string;
  kind: string;
  metadata: { name: string; namespace: string; labels?: Record<string, string>; annotations?: Record<string, string> };
  spec: MachineSpec;
}

export interface Image {
  id: string;
  storageClass: string;
  virtualSize: number;
  isDisc: boolean;
}

export interface Key {
  id: string;
  publicKey: string;
}

export interface Claim {
  metadata: { name: string; annotations?: Record<string, string> };
  spec: { accessModes?: string[]; volumeMode?: string; storageClassName?: string; resources?: { requests?: { storage?: string } } };
}

const GIB = 2 ** 30;
const LEAST_DISK_GIB = 10;
/** More than that does not fit into a machine and goes into a secret beside it. */
export const INLINE_BYTES = 2048;
const ROOT = "disk-0";
const IMAGE_ID = "harvesterhci.io/imageId";
const SEED = "cloudinitdisk";

/** What a machine may be called: it becomes a name in the network. */
export const NAME = "[a-z0-9]([a-z0-9\\-]*[a-z0-9])?";

export function fresh(namespace: string): Draft {
  return {
    apiVersion: "kubevirt.io/v1",
    kind: "VirtualMachine",
    metadata: { name: "", namespace, annotations: {} },
    spec: {
      runStrategy: "RerunOnFailure",
      template: {
        spec: {
          evictionStrategy: "LiveMigrateIfPossible",
          domain: {
            cpu: { cores: 2, sockets: 1, threads: 1 },
            devices: {
              disks: [],
              interfaces: [{ name: "default", model: "virtio", masquerade: {} }],
              inputs: [{ name: "tablet", type: "tablet", bus: "usb" }],
            },
            resources: { limits: { cpu: "2", memory: "2Gi" } },
          },
          networks: [{ name: "default", pod: {} }],
          volumes: [],
        },
      },
    },
  };
}

const inside = (draft: Draft) => draft.spec.template.spec;

const isMap = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);
/** A list of things with names, or nothing. */
const isListOfNamed = (value: unknown) => value === undefined || (Array.isArray(value) && value.every((one) => isMap(one) && typeof one.name === "string"));

/** What is wrong with something that was typed as YAML, as far as this form would stumble over it; the rest is the server's to say. */
export function misshapen(value: unknown): string | undefined {
  if (!isMap(value)) return words.vms.shapes.empty;
  const { kind, metadata, spec } = value;
  if (kind !== "VirtualMachine") return words.vms.shapes.kind;
  if (!isMap(metadata)) return words.vms.shapes.missing("metadata");
  if (typeof metadata.name !== "string") return words.vms.shapes.missing("metadata.name");
  if (typeof metadata.namespace !== "string") return words.vms.shapes.missing("metadata.namespace");
  if (metadata.annotations !== undefined && !isMap(metadata.annotations)) return words.vms.shapes.map("metadata.annotations");
  const template = isMap(spec) ? spec.template : undefined;
  const inner = isMap(template) ? template.spec : undefined;
  const domain = isMap(inner) ? inner.domain : undefined;
  const devices = isMap(domain) ? domain.devices : undefined;
  if (!isMap(template) || !isMap(inner) || !isMap(domain) || !isMap(devices)) return words.vms.shapes.missing("spec.template.spec.domain.devices");
  if (template.metadata !== undefined && !isMap(template.metadata)) return words.vms.shapes.map("spec.template.metadata");
  for (const [path, list] of Object.entries({ volumes: inner.volumes, networks: inner.networks, "domain.devices.disks": devices.disks, "domain.devices.interfaces": devices.interfaces })) {
    if (!isListOfNamed(list)) return words.vms.shapes.list(`spec.template.spec.${path}`);
  }
  for (const [path, map] of Object.entries({ cpu: domain.cpu, memory: domain.memory, firmware: domain.firmware, resources: domain.resources, features: domain.features })) {
    if (map !== undefined && !isMap(map)) return words.vms.shapes.map(`spec.template.spec.domain.${path}`);
  }
  return undefined;
}

// Name and size.

export function setName(draft: Draft, name: string) {
  const before = draft.metadata.name;
  draft.metadata.name = name;
  const claims = claimsIn(draft);
  for (const volume of inside(draft).volumes ?? []) {
    const used = volume.persistentVolumeClaim;
    const claim = claims.find((one) => one.metadata.name === used?.claimName);
    // What was named by hand, or is somebody else's, stays.
    if (!used || !claim || claim.metadata.name !== claimName(before, volume.name)) continue;
    used.claimName = claim.metadata.name = claimName(name, volume.name);
  }
  putClaims(draft, claims);
  if (inside(draft).hostname === before || inside(draft).hostname === undefined) inside(draft).hostname = name;
}

export function setCpus(draft: Draft, cpus: number) {
  const { domain } = inside(draft);
  domain.cpu = { ...domain.cpu, cores: cpus, sockets: 1, threads: 1 };
  limits(draft).cpu = String(cpus);
}

export function setMemory(draft: Draft, mebibytes: number) {
  limits(draft).memory = mebibytes % 1024 === 0 ? `${mebibytes / 1024}Gi` : `${mebibytes}Mi`;
  delete inside(draft).domain.memory;
}

function limits(draft: Draft): Record<string, string> {
  const { domain } = inside(draft);
  domain.resources ??= {};
  return (domain.resources.limits ??= {});
}

// Its first disk.

export const claimName = (machine: string, disk: string) => `${machine}-${disk}`;

export function claimsIn(draft: Draft): Claim[] {
  try {
    const read: unknown = JSON.parse(draft.metadata.annotations?.[CLAIMS] ?? "[]");
    const isClaim = (one: unknown): one is Claim => isMap(one) && isMap(one.metadata) && typeof one.metadata.name === "string" && isMap(one.spec);
    return Array.isArray(read) && read.every(isClaim) ? read : [];
  } catch {
    return [];
  }
}

export function putClaims(draft: Draft, claims: Claim[]) {
  const annotations = (draft.metadata.annotations ??= {});
  if (claims.length > 0) annotations[CLAIMS] = JSON.stringify(claims);
  else delete annotations[CLAIMS];
}

export const imageOf = (draft: Draft) => claimsIn(draft)[0]?.metadata.annotations?.[IMAGE_ID] ?? "";

export function diskSizeOf(draft: Draft): number {
  const size = quantity(claimsIn(draft)[0]?.spec.resources?.requests?.storage);
  return size === undefined ? LEAST_DISK_GIB : Math.ceil(size / GIB);
}

/** The least that holds what the image has on it. */
export const leastSize = (image: Image | undefined) => Math.max(1, Math.ceil((image?.virtualSize ?? 0) / GIB));

export function setImage(draft: Draft, image: Image | undefined) {
  const claims = claimsIn(draft);
  const had = claims.length > 0;
  const size = Math.max(had ? diskSizeOf(draft) : LEAST_DISK_GIB, leastSize(image));
  const root: Claim = claims[0] ?? {
    metadata: { name: claimName(draft.metadata.name, ROOT) },
    spec: { accessModes: ["ReadWriteMany"], volumeMode: "Block" },
  };
  setStorage(root, size);
  // The class is the image's own; without one it is whatever the cluster takes.
  const { [IMAGE_ID]: hadImage, ...annotations } = root.metadata.annotations ?? {};
  if (image !== undefined) {
    root.metadata.annotations = { ...annotations, [IMAGE_ID]: image.id };
    root.spec.storageClassName = image.storageClass;
  } else if (hadImage !== undefined) {
    root.metadata.annotations = annotations;
    if (Object.keys(annotations).length === 0) delete root.metadata.annotations;
    delete root.spec.storageClassName;
  }
  putClaims(draft, [root, ...claims.slice(1)]);
  const { devices } = inside(draft).domain;
  const volumes = inside(draft).volumes ?? [];
  const disks = devices.disks ?? [];
  // Of a template it may have another name, and its place among the others.
  const name = volumes.find((one) => one.persistentVolumeClaim?.claimName === root.metadata.name)?.name ?? ROOT;
  const known = disks.find((one) => one.name === name);
  if (known === undefined || (known.cdrom !== undefined) !== (image?.isDisc ?? false)) {
    const bootOrder = known?.bootOrder ?? 1;
    const { disk: _disk, cdrom: _cdrom, lun: _lun, ...rest } = known ?? { name };
    const disk: Disk = image?.isDisc ? { ...rest, cdrom: { bus: "sata" }, bootOrder } : { ...rest, disk: { bus: "virtio" }, bootOrder };
    devices.disks = known ? disks.map((one) => (one === known ? disk : one)) : [disk, ...disks];
  }
  if (!volumes.some((one) => one.name === name)) inside(draft).volumes = [{ name, persistentVolumeClaim: { claimName: root.metadata.name } }, ...volumes];
}

function setStorage(claim: Claim, gibibytes: number) {
  claim.spec.resources = { ...claim.spec.resources, requests: { ...claim.spec.resources?.requests, storage: `${gibibytes}Gi` } };
}

export function setDiskSize(draft: Draft, gibibytes: number) {
  const claims = claimsIn(draft);
  if (claims[0] === undefined) return;
  setStorage(claims[0], gibibytes);
  putClaims(draft, claims);
}

// Its first network card.

/** Empty is the default network. */
export const networkOf = (draft: Draft) => inside(draft).networks?.[0]?.multus?.networkName ?? "";

export function setNetwork(draft: Draft, network: string) {
  const { domain, networks = [] } = inside(draft);
  const name = networks[0]?.name ?? "default";
  const interfaces = domain.devices.interfaces ?? [];
  const { bridge: _bridge, masquerade: _masquerade, ...rest } = interfaces.find((one) => one.name === name) ?? { name, model: "virtio" };
  const first = network === "" ? { ...rest, masquerade: {} } : { ...rest, bridge: {} };
  domain.devices.interfaces = [first, ...interfaces.filter((one) => one.name !== name)];
  inside(draft).networks = [network === "" ? { name, pod: {} } : { name, multus: { networkName: network } }, ...networks.slice(1)];
}

// What cloud-init tells the guest.

function seed(draft: Draft): CloudInit | undefined {
  return inside(draft).volumes?.find((one) => one.cloudInitNoCloud)?.cloudInitNoCloud;
}

function makeSeed(draft: Draft): CloudInit {
  const there = seed(draft);
  if (there) return there;
  const made: CloudInit = {};
  (inside(draft).volumes ??= []).push({ name: SEED, cloudInitNoCloud: made });
  (inside(draft).domain.devices.disks ??= []).push({ name: SEED, disk: { bus: "virtio" } });
  return made;
}

function dropEmptySeed(draft: Draft) {
  const there = seed(draft);
  if (!there || Object.keys(there).length > 0) return;
  const volumes = inside(draft).volumes ?? [];
  const name = volumes.find((one) => one.cloudInitNoCloud === there)?.name;
  inside(draft).volumes = volumes.filter((one) => one.name !== name);
  inside(draft).domain.devices.disks = inside(draft).domain.devices.disks?.filter((one) => one.name !== name) ?? [];
}

export const userDataOf = (draft: Draft) => seed(draft)?.userData ?? "";
export const networkDataOf = (draft: Draft) => seed(draft)?.networkData ?? "";

function put(draft: Draft, field: "userData" | "networkData", text: string) {
  // A seed has its text from one place: what is written here replaces the secret that had it.
  if (text !== "") delete makeSeed(draft)[field === "userData" ? "secretRef" : "networkDataSecretRef"];
  if (text !== "") makeSeed(draft)[field] = text;
  else if (seed(draft)) delete makeSeed(draft)[field];
  dropEmptySeed(draft);
}

export const setUserData = (draft: Draft, text: string) => put(draft, "userData", text);
export const setNetworkData = (draft: Draft, text: string) => put(draft, "networkData", text);

export function keysOf(draft: Draft): string[] {
  try {
    const read: unknown = JSON.parse(draft.spec.template.metadata?.annotations?.[SSH_NAMES] ?? "[]");
    return Array.isArray(read) ? read.filter((one): one is string => typeof one === "string") : [];
  } catch {
    return [];
  }
}

/** The chosen keys are in the user data and named beside it; those that were put there by hand stay. */
export function setKeys(draft: Draft, chosen: readonly string[], known: readonly Key[]) {
  // On the template, where Harvester's clients and the server look for them.
  const annotations = ((draft.spec.template.metadata ??= {}).annotations ??= {});
  if (chosen.length > 0) annotations[SSH_NAMES] = JSON.stringify(chosen);
  else delete annotations[SSH_NAMES];
  const ours = new Set(known.map((key) => key.publicKey.trim()));
  const wanted = known.filter((key) => chosen.includes(key.id)).map((key) => key.publicKey.trim());
  setUserData(draft, withKeys(userDataOf(draft), ours, wanted));
}

const HEAD = "#cloud-config";

export function withKeys(userData: string, ours: ReadonlySet<string>, wanted: readonly string[]): string {
  // A script, or something else that keys cannot be written into.
  if (userData.trim() !== "" && !userData.startsWith(HEAD)) return userData;
  const document = parseDocument(userData.slice(HEAD.length));
  if (document.errors.length > 0) return userData;
  const read: unknown = document.toJS();
  const had = (read as { ssh_authorized_keys?: unknown } | null)?.ssh_authorized_keys;
  const byHand = Array.isArray(had) ? had.filter((one): one is string => typeof one === "string" && !ours.has(one.trim())) : [];
  const keys = [...byHand, ...wanted];
  if (keys.length > 0) document.set("ssh_authorized_keys", keys);
  else if (document.has("ssh_authorized_keys")) document.delete("ssh_authorized_keys");
  const rest: unknown = document.toJS();
  const isEmpty = rest === null || (typeof rest === "object" && Object.keys(rest as object).length === 0);
  return isEmpty ? "" : `${HEAD}\n${document.toString({ lineWidth: 0 })}`;
}

// Firmware.

export type Firmware = "bios" | "uefi" | "secureBoot";

export function firmwareOf(draft: Draft): Firmware {
  const efi = inside(draft).domain.firmware?.bootloader?.efi as { secureBoot?: boolean } | undefined;
  if (efi === undefined) return "bios";
  return efi.secureBoot === false ? "uefi" : "secureBoot";
}

export function setFirmware(draft: Draft, firmware: Firmware) {
  const { domain } = inside(draft);
  const features = { ...(domain.features as Record<string, unknown> | undefined) };
  delete features.smm;
  const { bootloader, ...rest } = domain.firmware ?? {};
  if (firmware !== "bios") domain.firmware = { ...rest, bootloader: { efi: { ...bootloader?.efi, secureBoot: firmware === "secureBoot" } } };
  else if (Object.keys(rest).length > 0) domain.firmware = rest;
  else delete domain.firmware;
  if (firmware === "secureBoot") features.smm = { enabled: true };
  if (Object.keys(features).length > 0) domain.features = features;
  else delete domain.features;
}

export const descriptionOf = (draft: Draft) => draft.metadata.annotations?.[DESCRIPTION] ?? "";

export function setDescription(draft: Draft, text: string) {
  const annotations = (draft.metadata.annotations ??= {});
  if (text === "") delete annotations[DESCRIPTION];
  else annotations[DESCRIPTION] = text;
}

// What is sent.

export interface Made {
  vm: Draft;
  /** Of what does not fit into the machine. */
  secret?: { apiVersion: string; kind: string; metadata: { name: string; namespace: string; labels: Record<string, string> }; stringData: Record<string, string> };
}

/** The `number`th of `count` machines. `mark` makes the name of what is made beside it one that nothing else has. */
export function made(draft: Draft, number: number, count: number, mark: string): Made {
  const vm = structuredClone(draft);
  if (count > 1) {
    const width = String(count).length;
    setName(vm, `${draft.metadata.name}-${String(number).padStart(width, "0")}`);
  }
  const cloudInit = seed(vm);
  const { userData = "", networkData = "" } = cloudInit ?? {};
  const isLarge = [userData, networkData].some((text) => new TextEncoder().encode(text).length > INLINE_BYTES);
  if (!cloudInit || !isLarge) return { vm };
  const name = `${vm.metadata.name}-cloud-init-${mark}`;
  const stringData: Record<string, string> = {};
  if (userData !== "") {
    stringData.userdata = userData;
    cloudInit.secretRef = { name };
    delete cloudInit.userData;
  }
  if (networkData !== "") {
    stringData.networkdata = networkData;
    cloudInit.networkDataSecretRef = { name };
    delete cloudInit.networkData;
  }
  const labels = { "harvesterhci.io/cloud-init-template": "harvester" };
  return { vm, secret: { apiVersion: "v1", kind: "Secret", metadata: { name, namespace: vm.metadata.namespace, labels }, stringData } };
}

export const asText = (draft: unknown) => stringify(draft, { lineWidth: 0, aliasDuplicateObjects: false });
