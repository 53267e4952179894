// Clones of machines: what makes one, until it is made.

import { conditionOf, idOf, type Condition, type Thing } from "@/api/objects";

import { type Claim, sizeOf } from "./claim";
import { claimsOf, type VirtualMachine } from "./virtual-machine";

export interface CloneSpec {
  source: { kind: string; name: string };
  target?: { kind: string; name: string };
}

export interface CloneStatus {
  phase?: string;
  targetName?: string;
  conditions?: Condition[];
}

export type Clone = Thing<CloneSpec, CloneStatus>;

export type Standing = "underWay" | "failed" | "over";

/** On a machine: the uid of the clone that made it. */
const MADE_BY = "sheaf.io/made-by";

export function standingOf(clone: Clone): Standing {
  if (clone.metadata.deletionTimestamp || clone.status?.phase === "Succeeded") return "over";
  return clone.status?.phase === "Failed" ? "failed" : "underWay";
}

/** What it waits for or why it failed, in the server's words. */
export const messageOf = (clone: Clone) => conditionOf(clone, "Ready")?.message ?? "";

/** The name of the machine that is made; empty until the server has drawn one. */
export const targetOf = (clone: Clone) => clone.status?.targetName ?? clone.spec.target?.name ?? "";

/** What people are told of. */
export const nameOf = (clone: Clone) => targetOf(clone) || clone.metadata.name;

/** A machine of that name may be somebody else's. */
export const isMadeBy = (vm: VirtualMachine | undefined, clone: Clone): vm is VirtualMachine => vm?.metadata.annotations?.[MADE_BY] === clone.metadata.uid;

/** How much of its machine's disks is there, in percent. None until one of them is, since of one alone nothing is told but that. */
export function percentOf(clone: Clone, machines: ReadonlyMap<string, VirtualMachine>, claims: ReadonlyMap<string, Claim>): number | undefined {
  const { namespace } = clone.metadata;
  const vm = machines.get(idOf(namespace, targetOf(clone)));
  if (!isMadeBy(vm, clone)) return undefined;
  const disks = claimsOf(vm).map(({ claim }) => claims.get(idOf(namespace, claim)));
  const sizes = disks.map((claim) => (claim && sizeOf(claim)) ?? 0);
  const bound = sizes.filter((_, index) => disks[index]?.status?.phase === "Bound");
  const sum = (all: number[]) => all.reduce((one, other) => one + other, 0);
  return bound.length > 0 && !sizes.includes(0) ? (sum(bound) / sum(sizes)) * 100 : undefined;
}
