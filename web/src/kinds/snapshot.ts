// Snapshots of single volumes, and what becomes a machine again from a snapshot of one.

import type { Condition, Thing } from "@/api/objects";
import type { Tone } from "@/parts/tone";

import type { Backup } from "./backup";

export interface VolumeSnapshotSpec {
  source: { persistentVolumeClaimName?: string; volumeSnapshotContentName?: string };
  volumeSnapshotClassName?: string;
}

export interface VolumeSnapshotStatus {
  readyToUse?: boolean;
  restoreSize?: string;
  error?: { message?: string };
}

export type VolumeSnapshot = Thing<VolumeSnapshotSpec, VolumeSnapshotStatus>;

export interface RestoreSpec {
  target: { kind: string; name: string };
  virtualMachineBackupName: string;
  newVM?: boolean;
}

export interface RestoreStatus {
  complete?: boolean;
  progress?: number;
  conditions?: Condition[];
}

export type Restore = Thing<RestoreSpec, RestoreStatus>;

export type Standing = "ready" | "underWay" | "failed" | "deleting";

const tones: Record<Standing, Tone> = { ready: "good", underWay: "busy", failed: "bad", deleting: "busy" };
export const toneOfSnapshot = (standing: Standing) => tones[standing];

/** The same of a whole machine and of one volume. */
export function standingOf(snapshot: VolumeSnapshot | Backup): Standing {
  if (snapshot.metadata.deletionTimestamp) return "deleting";
  if (snapshot.status?.readyToUse) return "ready";
  return snapshot.status?.error?.message ? "failed" : "underWay";
}

/** The snapshot of a machine that it is a part of: it goes with that one, and not without it. */
export function partOf(snapshot: VolumeSnapshot): string | undefined {
  return snapshot.metadata.ownerReferences?.find((one) => one.kind === "VirtualMachineBackup")?.name;
}

/** What is in the way of a restore; empty when nothing is. */
export function troubleOf(restore: Restore): string {
  return restore.status?.conditions?.find((one) => one.reason === "Error")?.message ?? "";
}

export const isUnderWay = (restore: Restore) => restore.status?.complete !== true && !restore.metadata.deletionTimestamp;

export function newMachineOf(backup: Backup, name: string) {
  const { namespace } = backup.metadata;
  return {
    apiVersion: "harvesterhci.io/v1beta1",
    kind: "VirtualMachineRestore",
    metadata: { generateName: `${backup.metadata.name}-`, namespace },
    spec: {
      target: { apiGroup: "kubevirt.io", kind: "VirtualMachine", name },
      virtualMachineBackupName: backup.metadata.name,
      virtualMachineBackupNamespace: namespace,
      newVM: true,
    },
  };
}

