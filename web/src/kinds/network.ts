// Networks that machines are plugged into, the cluster networks that carry them, and the addresses that are lent on them.

import type { Condition, Thing } from "@/api/objects";

export type Attachment = Thing<{ config: string }>;
export type ClusterNetwork = Thing<unknown, { conditions?: Condition[] }>;

export interface PoolSpec {
  networkName: string;
  paused?: boolean;
  ipv4Config: { cidr: string; serverIP?: string; router?: string; dns?: string[]; pool?: { start?: string; end?: string; exclude?: string[] } };
}

export interface PoolStatus {
  ipv4?: { allocated?: Record<string, string>; used?: number; available?: number };
}

export type Pool = Thing<PoolSpec, PoolStatus>;

export interface LeasesStatus {
  networkConfigs?: { allocatedIPAddress?: string; macAddress?: string; networkName?: string; state?: string }[];
}

export type Leases = Thing<{ vmName?: string }, LeasesStatus>;

/** The facade's names of those that no other page shows. */
export const poolType = "network.harvesterhci.io.ippool";
export const leasesType = "network.harvesterhci.io.virtualmachinenetworkconfig";
export const MANAGEMENT = "mgmt";

export type Tagging = "untagged" | "vlan" | "trunk";

export interface Meaning {
  tagging: Tagging;
  clusterNetwork: string;
  vlan?: number;
  ranges?: [number, number][];
  mtu?: number;
}

interface Config {
  bridge?: string;
  vlan?: number;
  mtu?: number;
  vlanTrunk?: { id?: number; minID?: number; maxID?: number }[];
}

/** What a configuration says; `undefined` of what cannot be read. */
export function meaningOf(config: string): Meaning | undefined {
  let read: Config | null;
  try {
    read = JSON.parse(config) as Config | null;
  } catch {
    return undefined;
  }
  if (typeof read !== "object" || read === null) return undefined;
  const meaning: Meaning = { tagging: "untagged", clusterNetwork: (read.bridge ?? "").replace(/-br$/, "") };
  if (read.mtu) meaning.mtu = read.mtu;
  if (Array.isArray(read.vlanTrunk) && read.vlanTrunk.length > 0) {
    meaning.tagging = "trunk";
    meaning.ranges = read.vlanTrunk.map((one) => [one.id ?? one.minID ?? 0, one.id ?? one.maxID ?? 0]);
  } else if (read.vlan) {
    meaning.tagging = "vlan";
    meaning.vlan = read.vlan;
  }
  return meaning;
}

const LAST_VLAN = 4094;
const isVlan = (id: number) => Number.isInteger(id) && id >= 1 && id <= LAST_VLAN;

/** `10, 20-29` as ranges; `undefined` of what is none. */
export function readRanges(text: string): [number, number][] | undefined {
  const parts = text.split(",").map((part) => part.trim()).filter((part) => part !== "");
  const ranges = parts.map((part): [number, number] | undefined => {
    const found = /^(\d+)(?:\s*[-–]\s*(\d+))?$/.exec(part);
    const [low, high] = [Number(found?.[1]), Number(found?.[2] ?? found?.[1])];
    return found && isVlan(low) && isVlan(high) && low <= high ? [low, high] : undefined;
  });
  return ranges.length > 0 && ranges.every((one) => one !== undefined) ? ranges : undefined;
}

export const writeRanges = (ranges: readonly [number, number][]) => ranges.map(([low, high]) => (low === high ? `${low}` : `${low}–${high}`)).join(", ");

export interface Wanted extends Meaning {
  name: string;
  namespace: string;
}

export function newAttachment({ name, namespace, tagging, clusterNetwork, vlan, ranges }: Wanted) {
  const config = {
    cniVersion: "0.3.1",
    name,
    type: "bridge",
    bridge: `${clusterNetwork}-br`,
    promiscMode: true,
    ...(tagging === "vlan" ? { vlan } : {}),
    ...(tagging === "trunk" ? { vlanTrunk: (ranges ?? []).map(([minID, maxID]) => ({ minID, maxID })) } : {}),
    ipam: {},
  };
  return { apiVersion: "k8s.cni.cncf.io/v1", kind: "NetworkAttachmentDefinition", metadata: { name, namespace }, spec: { config: JSON.stringify(config) } };
}

/** Nodes have the untagged network of `mgmt` and no uplinks: a machine on another does not start, and says why. */
export const isCarried = (meaning: Pick<Meaning, "tagging" | "clusterNetwork">) => meaning.tagging === "untagged" && meaning.clusterNetwork === MANAGEMENT;
