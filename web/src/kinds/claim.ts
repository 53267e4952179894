// Volumes: claims of disk space, as Kubernetes has them.

import { type Condition, idOf, type Thing } from "@/api/objects";
import { quantity } from "@/parts/quantity";
import type { Tone } from "@/parts/tone";

import { claimsOf, type VirtualMachine } from "./virtual-machine";

export interface ClaimSpec {
  storageClassName?: string;
  volumeMode?: string;
  accessModes?: string[];
  resources: { requests: { storage: string } };
  dataSource?: { kind: string; name: string };
  volumeName?: string;
}

export interface ClaimStatus {
  phase?: string;
  capacity?: { storage?: string };
  conditions?: Condition[];
}

export type Claim = Thing<ClaimSpec, ClaimStatus>;
export type StorageClass = Thing & { provisioner?: string; parameters?: Record<string, string> };

export const IMAGE = "harvesterhci.io/imageId";
export const GIB = 2 ** 30;

export type Standing = "ready" | "waiting" | "growing" | "deleting" | "lost";

export const wantedSize = (claim: Claim) => quantity(claim.spec.resources.requests.storage);
export const sizeOf = (claim: Claim) => quantity(claim.status?.capacity?.storage) ?? wantedSize(claim);
export const imageOf = (claim: { metadata: Thing["metadata"] }) => claim.metadata.annotations?.[IMAGE] ?? "";

export function standingOf(claim: Claim): Standing {
  if (claim.metadata.deletionTimestamp) return "deleting";
  if (claim.status?.phase === "Lost") return "lost";
  if (claim.status?.phase !== "Bound") return "waiting";
  return (wantedSize(claim) ?? 0) > (sizeOf(claim) ?? 0) ? "growing" : "ready";
}

/** It is being filled with what something else holds. */
export const isBeingCopied = (claim: Claim) => claim.spec.dataSource !== undefined && standingOf(claim) === "waiting";

const tones: Record<Standing, Tone> = { ready: "good", waiting: "busy", growing: "busy", deleting: "busy", lost: "bad" };
export const toneOfClaim = (claim: Claim) => tones[standingOf(claim)];

/** The machines that have each claim, by the claim's id. */
export function usersOf(machines: readonly VirtualMachine[]): Map<string, VirtualMachine[]> {
  const users = new Map<string, VirtualMachine[]>();
  for (const vm of machines) {
    for (const id of new Set(claimsOf(vm).map(({ claim }) => idOf(vm.metadata.namespace, claim)))) users.set(id, [...(users.get(id) ?? []), vm]);
  }
  return users;
}

/** Whole gibibytes that are more than it has. */
export const leastGrowth = (claim: Claim) => Math.floor(Math.max(sizeOf(claim) ?? 0, wantedSize(claim) ?? 0) / GIB) + 1;

const DEFAULT = "storageclass.kubernetes.io/is-default-class";

/** The classes that an empty volume can be of, the default first. Those of images hold what their image holds. */
export function classesForEmpty(classes: readonly StorageClass[]): string[] {
  const isDefault = (one: StorageClass) => one.metadata.annotations?.[DEFAULT] === "true";
  return classes
    .filter((one) => one.parameters?.backingImage === undefined)
    .sort((one, other) => Number(isDefault(other)) - Number(isDefault(one)) || one.metadata.name.localeCompare(other.metadata.name))
    .map((one) => one.metadata.name);
}

export interface Wanted {
  name: string;
  namespace: string;
  gibibytes: number;
  storageClass: string;
  /** Its id; none for an empty volume. */
  image?: string;
}

export function newClaim({ name, namespace, gibibytes, storageClass, image }: Wanted) {
  return {
    apiVersion: "v1",
    kind: "PersistentVolumeClaim",
    metadata: { name, namespace, ...(image ? { annotations: { [IMAGE]: image } } : {}) },
    spec: {
      accessModes: ["ReadWriteMany"],
      volumeMode: "Block",
      ...(storageClass ? { storageClassName: storageClass } : {}),
      resources: { requests: { storage: `${gibibytes}Gi` } },
    },
  };
}
