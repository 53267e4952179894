// Nodes: the hosts that machines run on.

import type { Condition, Thing } from "@/api/objects";
import { conditionOf } from "@/api/objects";
import { quantity } from "@/parts/quantity";
import type { Tone } from "@/parts/tone";
import { words } from "@/words";

export interface NodeSpec {
  unschedulable?: boolean;
}

export interface NodeStatus {
  capacity?: Record<string, string>;
  allocatable?: Record<string, string>;
  addresses?: { type: string; address: string }[];
  conditions?: Condition[];
  nodeInfo?: {
    architecture?: string;
    osImage?: string;
    kernelVersion?: string;
    kubeletVersion?: string;
    containerRuntimeVersion?: string;
  };
}

/** A node that nothing was ever set on has no spec. */
export type Node = Thing<NodeSpec | undefined, NodeStatus>;

export const VOLUME_STORAGE = "sheaf.io/volume-storage";
const PROMISED = "sheaf.io/volume-storage-promised";

/** Conditions whose truth is bad news; of all others that we know, it is good news. */
const pressures = ["MemoryPressure", "DiskPressure", "PIDPressure"];
const promises = ["Ready", "KvmUsable", "TapsUsable", "MachinesKeptApart"];

export const isCordoned = (node: Node) => node.spec?.unschedulable === true;
export const isReady = (node: Node) => conditionOf(node, "Ready")?.status === "True";

export function isTrouble(condition: Condition): boolean {
  if (pressures.includes(condition.type)) return condition.status !== "False";
  return promises.includes(condition.type) && condition.status !== "True";
}

/** What whoever runs the host can do about it. */
export function remedyOf(condition: Condition): string {
  if (!isTrouble(condition)) return "";
  if (condition.type === "Ready" && condition.reason === "NoHypervisor") return words.hosts.remedies.NoHypervisor;
  return words.hosts.remedies[condition.type as keyof typeof words.hosts.remedies] ?? "";
}

export const troublesOf = (node: Node) => (node.status?.conditions ?? []).filter(isTrouble);

export function stateOfNode(node: Node): { text: string; tone: Tone; why: string } {
  const why = troublesOf(node).map((one) => one.message ?? one.type).join("\n");
  if (node.metadata.deletionTimestamp) return { text: words.hosts.leaving, tone: "busy", why };
  const ready = conditionOf(node, "Ready");
  if (ready?.status !== "True") return { text: ready?.status === "False" ? words.hosts.notReady : words.hosts.silent, tone: "bad", why };
  if (isCordoned(node)) return { text: words.hosts.cordoned, tone: "warn", why };
  const isPressed = troublesOf(node).some((one) => pressures.includes(one.type));
  return isPressed ? { text: words.hosts.pressed, tone: "warn", why } : { text: words.hosts.ready, tone: "good", why };
}

export const addressesOfNode = (node: Node) => (node.status?.addresses ?? []).filter((one) => one.type !== "Hostname").map((one) => one.address);

export function rolesOf(node: Node): string[] {
  const prefix = "node-role.kubernetes.io/";
  return Object.keys(node.metadata.labels ?? {}).filter((one) => one.startsWith(prefix)).map((one) => one.slice(prefix.length)).sort();
}

export const allocatable = (node: Node, what: string) => quantity(node.status?.allocatable?.[what]) ?? 0;
export const promisedStorage = (node: Node) => quantity(node.metadata.annotations?.[PROMISED]) ?? 0;

/** How machines run there: on the processor itself, or emulated, which is many times slower. */
export function runsOnKvm(node: Node): boolean | undefined {
  const condition = conditionOf(node, "KvmUsable");
  return condition === undefined ? undefined : condition.status === "True";
}

/** Of Sheaf itself, which stands behind the version of Kubernetes whose API it serves. */
export function versionOf(node: Node): string {
  const all = node.status?.nodeInfo?.kubeletVersion ?? "";
  return /\+sheaf(.+)$/.exec(all)?.[1] ?? all;
}

export const titleOf = (condition: Condition) => words.hosts.conditions[condition.type as keyof typeof words.hosts.conditions] ?? condition.type;
